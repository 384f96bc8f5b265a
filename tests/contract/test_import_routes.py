"""Imports through HTTP: announce, upload in parts, preview, run, report; and who may do so."""

import threading
from collections.abc import Iterator
from uuid import UUID

import httpx
import pytest
from prometheus_client import CollectorRegistry

from core.ids import uuid7
from core.tenants.tenants import LimitChanges, set_limits
from tests.conftest import TestDatabase
from tests.contract.server import Api, running
from tests.fakes.exports import export, zipped
from tests.rows import execute
from workers.broker import WakeBroker
from workers.main import WorkerProcess
from workers.metrics import WorkerMetrics
from workers.relay import Relay

WAIT = {"Prefer": "wait=30"}
IMPORTS = "/v1/stores/journal/imports"


@pytest.fixture
def bulk(api: Api) -> Iterator[None]:
    """A worker of the bulk lane, and the relay, which sends children to it."""
    worker, broker = WorkerProcess(api.settings, "bulk"), WakeBroker(api.settings.secret("redis_url"))
    settings = api.settings.model_copy(update={"relay_poll_seconds": 0.05})
    relay = Relay(api.database.relay, broker, settings, WorkerMetrics(CollectorRegistry()))
    thread = threading.Thread(target=relay.run, name="test-relay")
    worker.start()
    thread.start()
    try:
        yield
    finally:
        relay.stop()
        thread.join(20)
        worker.stop()
        broker.close()


def upload(client: httpx.Client, data: bytes, part: int = 1_000_000, **more: str) -> str:
    answer = client.post(IMPORTS, json={"size": len(data), **more})
    assert answer.status_code == 201, answer.text
    place = answer.headers["location"]
    for start in range(0, len(data), part):
        sent = send(client, place, start, data[start : start + part])
        assert sent.status_code == 204, sent.text
    return place


def send(client: httpx.Client, place: str, offset: int, data: bytes) -> httpx.Response:
    headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
    return client.patch(place, content=data, headers=headers)


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


def test_an_export_is_uploaded_looked_into_and_imported(client: httpx.Client, bulk: None) -> None:
    data = export(60, messages=4)
    announced = client.post(IMPORTS, json={"filename": "conversations.json", "size": len(data)})
    assert announced.status_code == 201
    body = announced.json()
    place = announced.headers["location"]
    assert place == f"/v1/imports/{body['id']}"
    assert body == {
        "id": body["id"], "store": "journal", "state": "uploading", "filename": "conversations.json", "size": len(data),
        "received": 0, "createdAt": body["createdAt"], "updatedAt": body["updatedAt"],
    }  # fmt: skip
    half = len(data) // 2
    assert send(client, place, 0, data[:half]).headers["upload-offset"] == str(half)

    offset = client.head(place)
    assert (offset.status_code, offset.headers["upload-offset"]) == (200, str(half))
    assert (offset.headers["upload-length"], offset.headers["cache-control"]) == (str(len(data)), "no-store")
    assert problem(client.post(f"{place}/preview")) == (409, "wrong-state")
    assert problem(client.post(f"{place}/start")) == (409, "wrong-state")
    assert send(client, place, half, data[half:]).status_code == 204
    assert client.get(place).json()["state"] == "ready"

    preview = client.post(f"{place}/preview").json()
    assert (preview["format"], preview["complete"], len(preview["conversations"])) == ("chatgpt", False, 50)
    assert preview["conversations"][0] == {
        "id": "conversation-0", "title": "Conversation 0", "messages": 4,
        "firstAt": "2023-11-14T22:13:20.000Z", "lastAt": "2023-11-14T22:13:23.000Z",
    }  # fmt: skip

    done = client.post(f"{place}/start", headers=WAIT)
    assert (done.status_code, done.headers["preference-applied"]) == (200, "wait")
    assert done.json()["state"] == "succeeded"
    found = client.get(place).json()
    assert found["state"] == "succeeded"
    assert found["report"] == done.json()["report"]
    assert (found["report"]["documents"], found["report"]["messages"]) == (60, 240)
    assert client.get(f"/v1/jobs/{found['job']}").json()["result"] == done.json()
    assert problem(client.post(f"{place}/start")) == (409, "wrong-state")
    assert problem(client.post(f"{place}/cancel")) == (409, "wrong-state")
    listed = client.get("/v1/imports").json()["items"]
    assert [(entry["id"], entry["state"]) for entry in listed] == [(body["id"], "succeeded")]


def test_a_small_zip_is_seen_whole(client: httpx.Client) -> None:
    place = upload(client, zipped(export(3)), part=500)
    preview = client.post(f"{place}/preview").json()
    assert preview["complete"] is True
    assert [entry["title"] for entry in preview["conversations"]] == [f"Conversation {n}" for n in range(3)]
    assert preview["skipped"] == [
        {"reason": "it is not a file of conversations", "count": 1, "examples": ["user.json"]}
    ]


def test_what_is_no_archive_is_told_at_the_preview_and_by_the_job(client: httpx.Client, bulk: None) -> None:
    place = upload(client, b'{"not": "an archive"}')
    assert problem(client.post(f"{place}/preview")) == (422, "invalid-request")
    answer = client.post(f"{place}/start", headers=WAIT)
    assert problem(answer) == (422, "invalid-request")
    assert "Supported: a ChatGPT export" in answer.json()["detail"]
    shown = client.get(place).json()
    assert (shown["state"], shown["error"]["type"]) == ("failed", "/problems/invalid-request")


def test_a_start_is_accepted_once_for_its_key(client: httpx.Client, bulk: None) -> None:
    place = upload(client, export(5))
    key = {"Idempotency-Key": "start-1"}
    first, second = client.post(f"{place}/start", headers=key), client.post(f"{place}/start", headers=key)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert first.headers["location"] == f"/v1/jobs/{first.json()['id']}"
    assert first.json()["queue"] == "import.bulk"


def test_an_announcement_is_made_once_for_its_key(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "import-1"}
    answers = [client.post(IMPORTS, json={"size": 10}, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert problem(client.post(IMPORTS, json={"size": 11}, headers=key)) == (409, "idempotency-conflict")


def test_pause_resume_and_cancel_without_a_worker(client: httpx.Client) -> None:
    place = upload(client, export(5))
    job = client.post(f"{place}/start").json()
    assert client.get(place).json()["job"] == job["id"]
    assert client.post(f"{place}/pause").json()["state"] == "paused"
    assert client.post(f"{place}/pause").json()["state"] == "paused"
    resumed = client.post(f"{place}/resume")
    assert (resumed.status_code, resumed.json()["id"]) == (202, job["id"]), "its run had not come to its end"
    assert client.get(place).json()["state"] == "running"
    assert problem(client.post(f"{place}/resume")) == (409, "wrong-state")
    assert client.post(f"{place}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{place}/cancel").json()["state"] == "cancelled"
    assert client.get(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    for step in ("start", "pause", "resume"):
        answer = client.post(f"{place}/{step}")
        assert problem(answer) == (409, "wrong-state")
        assert answer.json()["detail"] == "the import is cancelled"


def test_a_part_in_the_wrong_place_too_many_bytes_or_no_offset(client: httpx.Client) -> None:
    place = client.post(IMPORTS, json={"size": 10}).headers["location"]
    assert send(client, place, 0, b"12345").status_code == 204
    assert problem(send(client, place, 4, b"x")) == (409, "wrong-state")
    assert problem(send(client, place, 5, b"123456")) == (413, "too-large")
    answer = client.patch(place, content=b"x")
    assert problem(answer) == (422, "invalid-request")
    assert answer.json()["errors"][0]["field"].lower() == "upload-offset"
    for wrong in ("-1", "x", "99999999999999999999"):
        assert problem(client.patch(place, content=b"x", headers={"Upload-Offset": wrong}))[0] == 422
    assert client.head(place).headers["upload-offset"] == "5"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "size"),
        ({"size": 0}, "size"),
        ({"size": 2**31 + 1}, "size"),
        ({"size": "10"}, "size"),
        ({"size": 10, "filename": ""}, "filename"),
        ({"size": 10, "filename": "a\nb"}, "filename"),
        ({"size": 10, "filename": "x" * 256}, "filename"),
        ({"size": 10, "format": "claude"}, "format"),
        ({"size": 10, "colour": "red"}, "colour"),
    ],
)
def test_a_wrong_announcement_names_its_field(client: httpx.Client, body: dict[str, object], field: str) -> None:
    answer = client.post(IMPORTS, json=body)
    assert problem(answer) == (422, "invalid-request")
    assert [entry["field"] for entry in answer.json()["errors"]] == [field]


def test_another_tenants_import_is_not_there(api: Api, client: httpx.Client) -> None:
    place = upload(client, export(3))
    with api.client(api.key(api.tenant())) as other:
        _nothing_there(other, place)
        assert other.get("/v1/imports").json() == {"items": []}
    _nothing_there(client, f"/v1/imports/{uuid7()}")
    assert client.get(place).json()["state"] == "ready"


def _nothing_there(client: httpx.Client, place: str) -> None:
    for step in ("preview", "start", "pause", "resume", "cancel"):
        assert problem(client.post(f"{place}/{step}")) == (404, "not-found")
    assert problem(client.get(place)) == (404, "not-found")
    assert client.head(place).status_code == 404
    assert problem(send(client, place, 0, b"x")) == (404, "not-found")


def test_a_key_for_another_store_or_without_the_scope(api: Api, client: httpx.Client, tenant: UUID) -> None:
    place = upload(client, export(3))
    api.store(tenant, "notes")
    with api.client(api.key(tenant, stores=["notes"])) as elsewhere:
        _nothing_there(elsewhere, place)
        assert elsewhere.get("/v1/imports").json() == {"items": []}
        assert problem(elsewhere.post(IMPORTS, json={"size": 1})) == (403, "forbidden")
    with api.client(api.key(tenant, ("read",))) as reader:
        assert reader.get(place).status_code == 200
        assert problem(reader.post(IMPORTS, json={"size": 1})) == (403, "forbidden")
        assert problem(reader.post(f"{place}/start")) == (403, "forbidden")
        assert problem(send(reader, place, 0, b"x")) == (403, "forbidden")
    with api.client(api.key(tenant, ("write",))) as writer:
        assert writer.head(place).status_code == 200
        assert problem(writer.get("/v1/imports")) == (403, "forbidden")
    with api.client(api.key(tenant, ("manage",))) as manager:
        assert problem(manager.get(place)) == (403, "forbidden")
    assert problem(client.post("/v1/stores/nowhere/imports", json={"size": 1})) == (404, "not-found")


def test_read_only_takes_no_import(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with running(database, redis_url) as api, api.client(api.key(tenant)) as client:
        place = upload(client, export(3))
    with running(database, redis_url, readonly=True) as api, api.client(api.key(tenant)) as client:
        answers = [
            client.post(IMPORTS, json={"size": 1}), send(client, place, 0, b"x"), client.post(f"{place}/start"),
            client.post(f"{place}/resume"),
        ]  # fmt: skip
        assert [problem(answer) for answer in answers] == [(503, "read-only")] * 4
        assert client.get(place).json()["state"] == "ready"


def test_more_than_may_be_stored_is_refused_when_announced(api: Api, tenant: UUID) -> None:
    with api.database.relay.system() as tx:
        set_limits(tx, tenant, LimitChanges(max_stored_bytes=1_000))
    with api.client(api.key(tenant)) as client:
        assert client.post(IMPORTS, json={"size": 1_000}).status_code == 201
        answer = client.post(IMPORTS, json={"size": 1})
        assert problem(answer) == (429, "quota")
        assert int(answer.headers["retry-after"]) > 0


def test_the_list_goes_page_by_page(client: httpx.Client) -> None:
    places = [client.post(IMPORTS, json={"size": n + 1}).json()["id"] for n in range(5)]
    pages = [client.get("/v1/imports", params={"limit": 2}).json()]
    while "nextCursor" in pages[-1] and len(pages) < 9:
        pages.append(client.get("/v1/imports", params={"limit": 2, "cursor": pages[-1]["nextCursor"]}).json())
    assert [len(page["items"]) for page in pages] == [2, 2, 1]
    assert [entry["id"] for page in pages for entry in page["items"]] == places[::-1]


def test_an_erased_stores_imports_are_gone(api: Api, client: httpx.Client, bulk: None) -> None:
    place = upload(client, export(3))
    assert client.delete("/v1/stores/journal", headers=WAIT).status_code == 200
    assert problem(client.get(place)) == (404, "not-found")
    assert execute(api.database.admin, "select count(*) from uploads") == [(0,)]
