"""Imports on real services: uploads in parts, the split into children, pause and resume, and kills in mid-split."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from core.archives import service
from core.archives.report import Tally
from core.errors import NotFound, QuotaExceeded, TooLarge, WrongState
from core.ids import uuid7
from core.records.limits import MIB
from core.settings import child_environment
from tests.conftest import TestDatabase
from tests.fakes.exports import conversation, export, zipped
from tests.fakes.imports import World, make
from tests.rows import execute
from workers.actors import importing
from workers.broker import WakeBroker
from workers.metrics import WorkerMetrics
from workers.relay import Relay


@pytest.fixture
def world(database: TestDatabase, redis_url: str, tenant: UUID) -> Iterator[World]:
    yield from make(database, redis_url, tenant)


# -- uploads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [7, 1_000, 700_001, MIB, MIB + 1, 3 * MIB])
def test_an_upload_of_any_parts_is_the_file(world: World, part: int) -> None:
    size = 40 if part == 7 else 5_000 if part == 1_000 else 2 * MIB + 4_321
    data = bytes(n * 31 % 251 for n in range(1_021)) * (size // 1_021 + 1)
    import_id = world.upload(data[:size], part=part)
    assert world.get(import_id)["state"] == "ready"
    rows = execute(world.database.admin, "select bytes from uploads order by chunk")
    assert b"".join(row[0] for row in rows) == data[:size]
    assert all(len(row[0]) == MIB for row in rows[:-1])


def test_a_part_at_the_wrong_place_is_refused_and_nothing_kept(world: World) -> None:
    import_id = world.announce(100)
    world.append(import_id, 0, b"x" * 40)
    for offset in (0, 39, 41):
        with pytest.raises(WrongState, match="40 bytes were received"):
            world.append(import_id, offset, b"y" * 10)
    with pytest.raises(TooLarge, match="100 bytes were announced"):
        world.append(import_id, 40, b"y" * 61)
    assert execute(world.database.admin, "select bytes from uploads") == [(b"x" * 40,)]
    assert world.append(import_id, 40, b"").state == "uploading"
    assert world.append(import_id, 40, b"z" * 60).state == "ready"
    with pytest.raises(WrongState, match="the import is ready"):
        world.append(import_id, 100, b"")


def test_two_parts_for_one_place_at_once_are_one(world: World) -> None:
    import_id = world.announce(2_000_000)
    world.append(import_id, 0, b"a" * 500_000)
    outcomes: list[str] = []

    def send(byte: bytes) -> None:
        try:
            world.append(import_id, 500_000, byte * 600_000)
            outcomes.append("kept")
        except WrongState:
            outcomes.append("refused")

    threads = [threading.Thread(target=send, args=(byte,)) for byte in (b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["kept", "refused", "refused"]
    stored = b"".join(row[0] for row in execute(world.database.admin, "select bytes from uploads order by chunk"))
    assert len(stored) == 1_100_000
    assert len(set(stored[500_000:])) == 1


def test_bytes_that_were_pruned_are_missed(world: World) -> None:
    import_id = world.announce(3 * MIB)
    world.append(import_id, 0, b"x" * (2 * MIB + 5))
    execute(world.database.admin, "delete from uploads where chunk = 2")
    with pytest.raises(NotFound, match="no longer kept"):
        world.append(import_id, 2 * MIB + 5, b"x")
    ready = world.upload(export(3))
    execute(world.database.admin, "delete from uploads")
    with pytest.raises(NotFound, match="no longer kept"):
        world.start(ready)
    assert world.get(ready)["state"] == "ready"


def test_an_upload_counts_against_what_may_be_stored(world: World) -> None:
    world.announce(600, limit=1_000)
    with pytest.raises(QuotaExceeded, match="600 announced"):
        world.announce(401, limit=1_000)
    world.announce(400, limit=1_000)


# -- runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_an_import_writes_everything_once_and_says_so(world: World, packed: bool) -> None:
    data = export(250, messages=3, days=2)
    import_id = world.upload(zipped(data) if packed else data)
    job_id = world.start(import_id)
    world.drain()
    shown = world.get(import_id)
    report = shown["report"]
    assert shown["state"] == "succeeded"
    assert shown["format"] == "chatgpt"
    assert shown["progress"] == {"done": shown["size"], "total": shown["size"], "unit": "bytes"}
    assert {name: report[name] for name in ("conversations", "documents", "messages", "alreadyThere")} == {
        "conversations": 250, "documents": 500, "messages": 1_500, "alreadyThere": 0,
    }  # fmt: skip
    assert (report["firstAt"], report["lastAt"]) == ("2023-11-14T22:13:20.000Z", "2023-11-16T02:22:22.000Z")
    assert report["failed"] == []
    assert [left["reason"] for left in report["skipped"]] == (["it is not a file of conversations"] if packed else [])
    job = world.job(job_id)
    assert job["state"] == "succeeded"
    assert job["result"] == {"importId": str(import_id), "state": "succeeded", "report": report}
    assert (world.count("documents"), world.count("messages"), world.repeated()) == (500, 1_500, 0)


def test_the_same_export_again_is_already_there(world: World) -> None:
    data = export(120)
    first, import_id = world.upload(data), world.upload(data)
    for each in (first, import_id):
        world.start(each)
        world.drain()
    report = world.get(import_id)["report"]
    assert (report["documents"], report["messages"], report["alreadyThere"]) == (0, 0, 120)
    assert world.get(import_id)["state"] == "succeeded"
    assert (world.count("documents"), world.count("messages")) == (120, 240)


def test_only_so_many_children_are_out_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_PARTS", 10)
    monkeypatch.setattr(importing, "CHILDREN", 3)
    import_id = world.upload(export(100))
    job_id = world.start(import_id)
    assert world.step("import")
    assert world.job(job_id)["state"] == "waiting"
    assert world.count("jobs where kind = 'batch'") == 3
    done = world.get(import_id)["progress"]["done"]
    assert not world.step("import"), "it waits for its children without a thread"
    world.drain()
    assert world.get(import_id)["report"]["documents"] == 100
    assert world.get(import_id)["progress"]["done"] > done
    assert world.count("jobs where kind = 'batch'") == 10
    assert world.job(job_id)["attempt"] == 1, "waiting costs no attempt"


def test_a_conversation_larger_than_a_batch_is_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_PARTS", 10)
    import_id = world.upload(export(2, messages=1, days=25))
    world.start(import_id)
    world.step("import")
    sizes = execute(
        world.database.admin,
        "select json_array_length(payload::json -> 'items') from job_payloads join jobs using (job_id)"
        " where kind = 'batch' order by seq",
    )
    assert [row[0] for row in sizes] == [10, 10, 5, 10, 10, 5]
    world.drain()
    assert world.get(import_id)["report"]["documents"] == 50


def test_what_cannot_be_imported_is_named(world: World) -> None:
    entries: list[Any] = [conversation(n) for n in range(5)]
    entries += ["no conversation", {"id": "empty", "mapping": {}}, conversation(1)]
    import_id = world.upload(json.dumps(entries).encode())
    world.start(import_id)
    world.drain()
    report = world.get(import_id)["report"]
    assert report["conversations"] == report["documents"] == 5
    assert {left["reason"]: left["count"] for left in report["skipped"]} == {
        "it has no mapping": 1, "it has no message to import": 1, "its id came before in this archive": 1,
    }  # fmt: skip
    assert next(left for left in report["skipped"] if "came before" in left["reason"])["examples"] == [
        "conversation conversation-1"
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"messages": []}', "is a JSON object, and an export is a list of conversations"),
        (b"PK\x03\x04 broken", "The zip is damaged"),
        (json.dumps([{"id": "a", "mapping": {}}]).encode(), "holds no message that can be imported"),
    ],
)
def test_an_import_of_no_message_is_no_success(world: World, data: bytes, reason: str) -> None:
    import_id = world.upload(data)
    job_id = world.start(import_id)
    world.drain()
    shown = world.get(import_id)
    assert shown["state"] == "failed"
    assert reason in shown["error"]["detail"]
    assert shown["error"]["type"] == "/problems/invalid-request"
    assert "finishedAt" in shown
    assert (world.job(job_id)["state"], world.job(job_id)["attempt"]) == ("failed", 1)
    assert world.count("documents") == 0


def test_an_archive_that_breaks_off_keeps_what_came_before_and_fails(world: World) -> None:
    data = export(150)
    import_id = world.upload(data[: data.index(b'"Conversation 140"')])
    world.start(import_id)
    world.drain()
    shown = world.get(import_id)
    assert shown["state"] == "failed"
    assert "cannot be read to its end" in shown["error"]["detail"]
    assert "140 conversations, was imported" in shown["error"]["detail"]
    assert shown["report"]["documents"] == world.count("documents") == 140


def test_documents_that_fail_are_listed_and_the_others_written(world: World) -> None:
    import_id = world.upload(export(10))
    world.start(import_id)
    world.step("import")
    execute(
        world.database.admin,
        """update job_payloads p set payload = replace(p.payload, '"sessionId":"conversation-3"', '"sessionId":""')
             from jobs j where j.job_id = p.job_id and j.kind = 'batch'""",
    )
    world.drain()
    report = world.get(import_id)["report"]
    assert (report["documents"], report["failedDocuments"]) == (9, 1)
    assert "sessionId" in report["failed"][0]["error"]
    assert world.get(import_id)["state"] == "succeeded"


def test_an_import_whose_every_document_fails_is_no_success(world: World) -> None:
    import_id = world.upload(export(3))
    world.start(import_id)
    world.step("import")
    execute(
        world.database.admin,
        """update job_payloads p set payload = '{"items": 1}' from jobs j where j.job_id = p.job_id and j.kind = 'batch'""",
    )
    world.drain()
    shown = world.get(import_id)
    assert shown["state"] == "failed"
    assert "none of 3 documents could be written" in shown["error"]["detail"]


def test_a_long_import_goes_on_in_a_fresh_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_PARTS", 10)
    monkeypatch.setattr(importing, "LAST_SHARE", 1.0)  # every run is late from its start
    import_id = world.upload(export(30))
    job_id = world.start(import_id)
    assert world.step("import")
    assert execute(world.database.admin, "select next_item from imports") == [(1,)]
    world.drain()
    assert world.get(import_id)["report"]["documents"] == world.count("documents") == 30
    assert world.job(job_id)["attempt"] == 1


# -- pause, resume, cancel -----------------------------------------------------------------------------------------------


def _in_mid_import(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[UUID, UUID]:
    """An import of 100 conversations with 40 sent and none written."""
    monkeypatch.setattr(importing, "BATCH_PARTS", 10)
    monkeypatch.setattr(importing, "CHILDREN", 4)
    import_id = world.upload(export(100))
    job_id = world.start(import_id)
    assert world.step("import")
    return import_id, job_id


def test_a_paused_import_writes_what_was_sent_and_goes_on_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    assert world.act(service.pause, import_id).state == "paused"
    world.drain()
    assert world.count("documents") == 40
    assert world.get(import_id)["state"] == "paused"
    assert world.get(import_id)["report"]["documents"] == 40
    assert world.job(job_id)["result"]["state"] == "paused"
    again = world.start(import_id, "paused")
    assert again != job_id
    world.drain()
    shown = world.get(import_id)
    assert (shown["state"], shown["report"]["documents"], shown["report"]["alreadyThere"]) == ("succeeded", 100, 0)
    assert (world.count("documents"), world.repeated()) == (100, 0)


def test_a_run_that_is_resumed_before_its_end_simply_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    world.act(service.pause, import_id)
    assert world.start(import_id, "paused") == job_id
    world.drain()
    assert world.job(job_id)["result"]["report"]["documents"] == world.count("documents") == 100


def test_a_pause_in_the_middle_of_a_split_stops_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "BATCH_PARTS", 10)
    import_id = world.upload(export(100))
    world.start(import_id)
    hits = iter(range(1_000))

    def hit(point: str) -> bool:
        if point == "import.split" and next(hits) == 2:
            world.act(service.pause, import_id)
        return False

    monkeypatch.setattr(world.faults, "hit", hit)
    world.drain()
    shown = world.get(import_id)
    assert (shown["state"], shown["report"]["documents"], shown["report"]["conversations"]) == ("paused", 20, 20)
    world.start(import_id, "paused")
    world.drain()
    assert world.get(import_id)["report"]["conversations"] == world.count("documents") == 100


def test_a_cancelled_import_ends_with_its_children(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    assert world.act(service.cancel, import_id).state == "cancelled"
    assert world.act(service.cancel, import_id).state == "cancelled"
    world.drain()
    shown = world.get(import_id)
    assert world.count("documents") == 0
    assert (shown["state"], shown["report"]["documents"], shown["report"]["failedDocuments"]) == ("cancelled", 0, 0)
    assert world.job(job_id)["state"] == "cancelled"
    for act in (service.pause, lambda tx, tenant, id: service.begin(tx, tenant, id, uuid7(), "ready", "paused")):
        with pytest.raises(WrongState, match="the import is cancelled"):
            world.act(act, import_id)


def test_an_import_whose_job_was_cancelled_shows_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    with world.database.app.tenant(world.tenant) as tx:
        tx.value("cancel_job", tenant=world.tenant, job=job_id)
    assert world.get(import_id)["state"] == "cancelled"


def test_a_failed_import_is_resumed_where_it_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    world.step("batch")  # takes all four, then the parent is ready
    execute(
        world.database.admin,
        "update jobs set state = 'dead', finished_at = now(), due_at = null, error = %s where job_id = %s",
        '{"detail": "lost"}',
        job_id,
    )
    shown = world.get(import_id)
    assert (shown["state"], shown["error"], shown["report"]["documents"]) == ("failed", {"detail": "lost"}, 40)
    world.start(import_id, "paused", "failed")
    world.drain()
    shown = world.get(import_id)
    assert (shown["state"], shown["report"]["documents"], world.count("documents")) == ("succeeded", 100, 100)


def test_a_run_waits_for_the_children_of_the_one_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import_id, job_id = _in_mid_import(world, monkeypatch)
    execute(world.database.admin, "update jobs set state = 'failed', finished_at = now() where job_id = %s", job_id)
    again = world.start(import_id, "failed")
    assert world.step("import")
    assert world.job(again)["state"] == "deferred", "they will not wake it"
    world.drain()
    execute(world.database.admin, "update jobs set state = 'queued', run_at = null where job_id = %s", again)
    world.drain()
    assert world.get(import_id)["report"]["documents"] == world.count("documents") == 100


def test_the_job_of_another_run_does_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, job_id = _in_mid_import(world, monkeypatch)
    world.drain()
    execute(world.database.admin, "update imports set job_id = %s, state = 'running'", uuid7())
    execute(world.database.admin, "update jobs set state = 'queued', finished_at = null where job_id = %s", job_id)
    world.drain()
    assert world.job(job_id)["error"]["detail"] == "another job runs this import by now"


def test_a_job_that_was_not_accepted_leaves_the_import_as_it_was(world: World) -> None:
    import_id = world.upload(export(3))
    job_id = uuid7()
    with world.database.app.tenant(world.tenant) as tx:
        before = service.begin(tx, world.tenant, import_id, job_id, "ready")
    assert world.get(import_id)["state"] == "running"
    with world.database.app.tenant(world.tenant) as tx:
        service.take_back(tx, world.tenant, before, job_id)
    assert world.get(import_id)["state"] == "ready"
    with world.database.app.tenant(world.tenant) as tx:
        service.begin(tx, world.tenant, import_id, job_id, "ready")
    execute(world.database.admin, "update imports set updated_at = now() - interval '2 minutes'")
    assert world.get(import_id)["state"] == "failed", "the process died between the two transactions"
    world.start(import_id, "failed")
    world.drain()
    assert world.get(import_id)["state"] == "succeeded"


def test_a_tally_is_stored_and_loaded_whole() -> None:
    tally = Tally(conversations=3, failed=1, failures=[{"document": "a", "error": "b"}], problem={"detail": "c"})
    assert Tally.load(json.loads(json.dumps(tally.stored()))) == tally


# -- kills ---------------------------------------------------------------------------------------------------------------

CONVERSATIONS = 2_000


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("faults", "packed"),
    [("import.split=kill:0.5", False), ("import.children=kill:0.5", True), ("commit.before=kill", True)],
)
def test_a_worker_killed_in_mid_split_loses_and_doubles_nothing(
    database: TestDatabase, redis_url: str, tenant: UUID, faults: str, packed: bool
) -> None:
    """failure-cases.md S6: every kill by a real SIGKILL of a real worker; its leases are made to end at once."""
    # Enough tries for whatever chance brings.
    worlds = make(
        database, redis_url, tenant, max_attempts=100, max_crashes=100, sweep_seconds=0.1, relay_poll_seconds=0.1
    )
    world = next(worlds)
    data = export(CONVERSATIONS, messages=3)
    again = json.dumps(
        conversation(5, messages=3, days=2)
    ).encode()  # has grown: the first one counts, whoever reads it
    data = data[:-1] + b"," + again + b"]"
    import_id = world.upload(zipped(data) if packed else data)
    relay_broker = WakeBroker(redis_url)
    relay = Relay(database.relay, relay_broker, world.settings, WorkerMetrics(CollectorRegistry()))
    thread = threading.Thread(target=relay.run)
    thread.start()
    kills = 0
    try:
        world.start(import_id)
        deadline = time.monotonic() + 150
        while world.get(import_id)["state"] == "running":
            assert time.monotonic() < deadline, world.get(import_id)
            # After some kills the import must come to its end.
            kills += _work_until_killed_or_done(world, import_id, faults if kills < 5 else "", deadline)
            execute(database.admin, "update jobs set due_at = now() where state = 'running'")
    finally:
        relay.stop()
        thread.join(20)
        relay_broker.close()
        worlds.close()
    shown = world.get(import_id)
    assert shown["state"] == "succeeded", shown
    assert kills >= 3
    report = shown["report"]
    assert (report["conversations"], report["documents"], report["messages"]) == (2_000, 2_000, 6_000)
    assert (report["alreadyThere"], report["failedDocuments"]) == (0, 0)
    assert [left["count"] for left in report["skipped"] if "came before" in left["reason"]] == [1]
    assert (world.count("documents"), world.count("messages"), world.repeated()) == (2_000, 6_000, 0)


def _work_until_killed_or_done(world: World, import_id: UUID, faults: str, deadline: float) -> int:
    environment = child_environment(
        database_url=world.database.dsn("app"),
        redis_url=world.settings.secret("redis_url"),
        faults=faults,
        log="text",
        max_attempts=str(world.settings.max_attempts),
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "api.cli.main", "worker", "bulk"], env=environment, cwd=os.getcwd(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while worker.poll() is None and world.get(import_id)["state"] == "running":
            assert time.monotonic() < deadline
            try:
                worker.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        return int(worker.poll() == -9)
    finally:
        worker.terminate()
        worker.wait(40)  # beyond what a stopping worker lets its jobs have
