"""A store's export: every record's exact bytes, a line each."""

import hashlib

import httpx
import pytest

from core.records import exporting
from tests.fakes.corpus import TEXTS

WAIT = {"Prefer": "wait=30"}


@pytest.mark.parametrize(("records", "size"), [(500, 4 * 1024 * 1024), (3, 4 * 1024 * 1024), (500, 700)])
def test_every_record_comes_once_as_it_is(
    client: httpx.Client, workers: None, monkeypatch: pytest.MonkeyPatch, records: int, size: int
) -> None:
    monkeypatch.setattr(exporting, "PAGE_RECORDS", records)
    monkeypatch.setattr(exporting, "PAGE_BYTES", size)
    texts = [text for name, text in TEXTS.items() if name != "a line of 1 MB"]
    body = {"items": [{"text": text} for text in texts]}
    assert client.post("/v1/stores/journal/memories:batch", json=body, headers=WAIT).status_code == 201
    exported = client.get("/v1/stores/journal/export")
    assert exported.headers["content-type"] == "application/x-ndjson"
    assert exported.headers["muniment-revision"] == str(len(texts))
    assert exported.content.endswith(b"\n")
    hashes = [hashlib.sha256(line).hexdigest() for line in exported.content.splitlines()]
    listed = client.get("/v1/stores/journal/records", params={"limit": 1000}).json()["items"]
    assert hashes == [entry["sha256"] for entry in listed]

    first = client.get("/v1/stores/journal/export", params={"revision": 1})
    assert exported.content.startswith(first.content)
    assert len(first.content.splitlines()) == sum(entry["revision"] == 1 for entry in listed)


def test_of_an_empty_store_nothing_comes(client: httpx.Client) -> None:
    assert client.get("/v1/stores/journal/export").content == b""
    assert client.get("/v1/stores/journal/export", params={"revision": 1}).status_code == 422
    assert client.get("/v1/stores/nobodys/export").status_code == 404
