"""A store's export: every record's exact bytes, a line each."""

import hashlib
import json

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


def test_a_conversation_comes_with_its_messages_so_that_it_can_be_written_anew(
    client: httpx.Client, workers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "PAGE_MESSAGES", 2)
    messages: list[dict[str, str]] = [
        {"role": "Ana", "content": "  two  spaces\n\nand\u2028lines ", "at": "2026-05-03T10:00:00+02:00"},
        {"role": "Ben", "content": ""},
        *({"role": "Ana", "content": f"{n} " + "tide " * 300} for n in range(3)),
    ]
    said = {"sessionId": "s-1", "messages": messages}
    assert client.post("/v1/stores/journal/memories", json={"text": "before"}, headers=WAIT).status_code == 201
    first = client.post("/v1/stores/journal/conversations", json=said, headers=WAIT)
    assert first.status_code == 201
    lines = [json.loads(line) for line in client.get("/v1/stores/journal/export").content.decode().split("\n")[:-1]]
    document = first.json()["document"]["id"]
    kinds = [line["kind"] for line in lines]
    assert kinds[2:8] == ["memory-document", *["memory-message"] * 5]
    assert set(kinds[8:]) == {"memory-record"}
    found = [line for line in lines if line["kind"] == "memory-message"]
    assert [line.pop("ordinal") for line in found] == [0, 1, 2, 3, 4]
    assert {line.pop("document") for line in found} == {document}

    again = {
        "sessionId": lines[2]["sessionId"],
        "messages": [{name: line[name] for name in ("role", "content", "at") if name in line} for line in found],
    }
    assert again == said
    second = client.post("/v1/stores/journal/conversations", json=again, headers=WAIT).json()
    texts = [
        client.get(f"/v1/stores/journal/records/{own_id}").json()["content"]
        for own_id in (document, second["document"]["id"])
    ]
    assert texts[0] == texts[1]


def test_of_an_empty_store_nothing_comes(client: httpx.Client) -> None:
    assert client.get("/v1/stores/journal/export").content == b""
    assert client.get("/v1/stores/journal/export", params={"revision": 1}).status_code == 422
    assert client.get("/v1/stores/nobodys/export").status_code == 404
