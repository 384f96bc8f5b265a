"""An import that is woken goes on from its place: what came before is neither parsed nor, where it can be helped, read."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from core.archives import chatgpt, splitter
from core.archives.uploads import Upload
from core.records.limits import MIB
from tests.conftest import TestDatabase
from tests.fakes.exports import conversation, export, zipped
from tests.fakes.imports import World, make
from tests.rows import execute
from workers.actors import importing

CHILD = 5
WAKE = 20
"""Conversations a child, and a wake."""


@pytest.fixture
def world(database: TestDatabase, redis_url: str, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(importing, "BATCH_PARTS", CHILD)
    monkeypatch.setattr(importing, "CHILDREN", WAKE // CHILD)
    yield from make(database, redis_url, tenant)


class Reading:
    """What the runs of an import have read: conversations parsed, rows of the upload fetched, wakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parsed = self.fetched = 0
        parse, fetch = chatgpt.conversation, Upload._fetch

        def parsing(entry: object, where: str) -> Iterator[Any]:
            self.parsed += 1
            return parse(entry, where)

        def fetching(upload: Upload, chunk: int) -> bytes:
            self.fetched += 1
            return fetch(upload, chunk)

        monkeypatch.setattr(chatgpt, "conversation", parsing)
        monkeypatch.setattr(Upload, "_fetch", fetching)
        monkeypatch.setattr(splitter, "CHUNK_BYTES", 64 * 1024)


def run(world: World, data: bytes) -> tuple[dict[str, Any], int]:
    """The import's report at its end, and how many times its job was woken."""
    import_id = world.upload(data)
    world.start(import_id)
    wakes = 0
    while world.step("import"):
        wakes += 1
        while world.step("batch"):
            pass
    world.drain()
    shown = world.get(import_id)
    assert shown["state"] == "succeeded", shown
    return shown["report"], wakes


@pytest.mark.parametrize("packed", [False, True])
def test_ten_times_the_archive_is_ten_times_the_reading(
    world: World, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    reading = Reading(monkeypatch)
    for count in (40, 400):
        data = export(count, words=2_000)
        upload = zipped(data) if packed else data
        reading.parsed = reading.fetched = 0
        report, wakes = run(world, upload)
        assert report["conversations"] == count
        assert wakes >= count // WAKE
        assert reading.parsed <= count + wakes  # one more is read before it is known that something is left
        if not packed:
            # Each wake: the first row and the size's, to tell the format, and the rows that it works on.
            assert reading.fetched <= len(upload) // MIB + 4 * wakes


def test_what_is_damaged_behind_the_place_is_still_told(world: World) -> None:
    good = export(60)
    import_id = world.upload(good[:-1] + b"x")
    world.start(import_id)
    world.drain()
    shown = world.get(import_id)
    assert shown["state"] == "failed"
    assert "cannot be read to its end" in shown["error"]["detail"]
    assert shown["report"]["documents"] == world.count("documents") == 59


def test_a_conversation_that_came_in_an_earlier_wake_is_left_out(world: World) -> None:
    """In another file of the zip, and grown since: whichever wake meets it, the first one counts."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations-000.json", export(50))
        later = [conversation(n, days=2) for n in (3, 49)] + [conversation(n) for n in range(50, 100)]
        archive.writestr("conversations-001.json", json.dumps([*later, conversation(7, days=3)]))
    report, wakes = run(world, packed.getvalue())
    assert wakes > 4
    assert (report["conversations"], report["documents"], report["alreadyThere"]) == (100, 100, 0)
    assert report["skipped"] == [
        {
            "reason": "its id came before in this archive",
            "count": 3,
            "examples": [f"conversation conversation-{n}" for n in (3, 49, 7)],
        }
    ]


def test_an_import_that_an_older_version_began_is_taken_up_where_it_stood(world: World) -> None:
    import_id = world.upload(export(100))
    world.start(import_id)
    assert world.step("import")
    execute(world.database.admin, "update imports set place = null")
    execute(world.database.admin, "delete from import_ids")
    world.drain()
    shown = world.get(import_id)
    assert (shown["report"]["conversations"], shown["report"]["documents"]) == (100, 100)
    assert world.repeated() == 0
    assert execute(world.database.admin, "select sum(octet_length(digests)) from import_ids") == [(1_600,)]


def test_what_was_noted_of_an_archive_goes_with_its_bytes(world: World) -> None:
    run(world, export(30))
    assert world.count("import_ids") > 0
    execute(world.database.admin, "update imports set updated_at = now() - interval '2 days'")
    with world.database.relay.direct() as tx:
        tx.run("prune_uploads", hours=24, limit=64)
    assert (world.count("uploads"), world.count("import_ids")) == (0, 0)
