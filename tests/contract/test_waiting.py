"""Waiting for a job: Prefer, 202, late answers, lost messages, and clients that go away (contract.md, Waiting)."""

import asyncio
import json
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import UUID

import httpx
import pytest
import redis

from api.waiting import _accept
from core.errors import DocumentExists, Unavailable
from core.ids import uuid7
from core.jobs.model import JobRequest
from tests.conftest import TestDatabase
from tests.contract.byhand import claim, finish, job_count, job_state, open_job, until
from tests.contract.server import NO_REDIS, Api, running

WRITE = "/v1/stores/journal/memories"
READ = "/v1/stores/journal/reads"
VIEW = {"revision": 0, "items": []}


def post(client: httpx.Client, path: str, wait: int | None = 20, key: str | None = None) -> "Future[httpx.Response]":
    """Sends in another thread, since the answer comes only when the test has ended the job."""
    headers = {} if wait is None else {"Prefer": f"wait={wait}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    pool = ThreadPoolExecutor(1)
    body = {"text": "x"} if path == WRITE else {"question": "x"}
    sent = pool.submit(client.post, path, json=body, headers=headers)
    pool.shutdown(wait=False)
    return sent


def test_the_result_comes_as_soon_as_the_job_ends(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, READ, None)
    finish(api, tenant, open_job(api, tenant), result=VIEW)
    began = time.monotonic()
    answer = sent.result(20)
    assert time.monotonic() - began < 0.9, "it came by the poll, not by the message"
    assert (answer.status_code, answer.json()) == (200, VIEW)
    assert answer.headers["preference-applied"] == "wait"
    assert answer.headers["content-type"] == "application/json"


def test_an_answer_too_large_for_a_message_is_read_from_the_row(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, READ)
    view = {**VIEW, "items": [{"text": "ä" * 20_000}]}
    finish(api, tenant, open_job(api, tenant), result=view)
    assert sent.result(20).json() == view


def test_a_lost_message_costs_a_second_not_the_answer(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, WRITE)
    finish(api, tenant, open_job(api, tenant), result={"revision": 1}, tell=False)
    answer = sent.result(10)
    assert (answer.status_code, answer.json()) == (201, {"revision": 1})


def test_without_redis_answers_come_from_the_rows(database: TestDatabase, tenant: UUID) -> None:
    with running(database, NO_REDIS) as api, api.client(api.key(tenant)) as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "degraded": ["redis"]})
        sent = post(client, READ)
        finish(api, tenant, open_job(api, tenant), result=VIEW, tell=False)
        assert sent.result(10).json() == VIEW
        assert client.post(WRITE, json={"text": "x"}).status_code == 202


def test_answers_come_by_message_again_after_redis_was_lost(api: Api, client: httpx.Client, tenant: UUID) -> None:
    channel = f"muniment:answer:{api.services.waiter.id}"
    with redis.Redis.from_url(api.settings.secret("redis_url"), socket_timeout=5) as server:
        assert server.client_kill_filter(_type="pubsub") == 1
        until(lambda: server.pubsub_numsub(channel)[0][1] == 1)
    sent = post(client, READ)
    finish(api, tenant, open_job(api, tenant), result=VIEW)
    began = time.monotonic()
    assert sent.result(20).json() == VIEW
    assert time.monotonic() - began < 0.9, "it came by the poll, not by the message"


def test_a_wait_that_ends_first_answers_202_and_the_job_goes_on(api: Api, client: httpx.Client, tenant: UUID) -> None:
    began = time.monotonic()
    answer = client.post(READ, json={"question": "x"}, headers={"Prefer": "wait=1"})
    assert 0.9 < time.monotonic() - began < 5
    assert answer.status_code == 202
    job = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    finish(api, tenant, UUID(job), result=VIEW)
    found = client.get(f"/v1/jobs/{job}").json()
    assert (found["state"], found["result"]) == ("succeeded", VIEW)


@pytest.mark.parametrize(
    ("state", "error", "status", "slug"),
    [
        ("failed", DocumentExists().as_json(), 409, "document-exists"),
        ("failed", None, 500, "job-failed"),
        ("dead", Unavailable("Postgres is away").as_json(), 500, "job-failed"),
    ],
)
def test_a_job_that_ends_badly_answers_its_problem(
    api: Api, client: httpx.Client, tenant: UUID, state: str, error: dict[str, object] | None, status: int, slug: str
) -> None:
    sent = post(client, WRITE)
    job = open_job(api, tenant)
    finish(api, tenant, job, state, error=error)
    answer = sent.result(20)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == f"/problems/{slug}"
    assert answer.json()["job"] == str(job)
    later = client.get(f"/v1/jobs/{job}")
    assert (later.status_code, later.json()["state"]) == (200, state)


def test_a_cancelled_job_tells_whoever_waits(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, WRITE)
    job = open_job(api, tenant)
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"
    answer = sent.result(5)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/cancelled")


def test_preferences_that_do_not_wait(client: httpx.Client) -> None:
    for preference in ("respond-async", "wait=0", 'wait="0"', "handling=lenient, WAIT = 0 ; x=1"):
        answer = client.post(WRITE, json={"text": "x"}, headers={"Prefer": preference})
        assert answer.status_code == 202, preference


def test_a_wait_that_cannot_be_read_is_refused(client: httpx.Client) -> None:
    for preference in ("wait", "wait=", "wait=-1", "wait=301", "wait=1.5", "wait=soon", "x, wait=9e9"):
        answer = client.post(WRITE, json={"text": "x"}, headers={"Prefer": preference})
        assert answer.status_code == 422, preference
        assert answer.json()["errors"][0]["field"] == "Prefer"


def hang_up(api: Api, tenant: UUID, path: str, body: dict[str, str], *, behind: str = "", **headers: str) -> UUID:
    """Sends a request that waits, and closes the connection once its job is there; the job's id. `behind` is sent with it."""
    text = json.dumps(body)
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {api.key(tenant)}",
        f"Content-Length: {len(text)}",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"Prefer": "wait=60", **headers}.items()]
    host, port = api.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n" + text + behind).encode())
        return open_job(api, tenant)


def disconnects(api: Api) -> float:
    found = [
        sample.value
        for family in api.services.metrics.disconnects.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    ]
    return sum(found)


@pytest.mark.parametrize("behind", ["", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["alone", "pipelined"])
def test_a_read_whose_client_goes_away_is_cancelled(api: Api, tenant: UUID, behind: str) -> None:
    job = hang_up(api, tenant, READ, {"question": "x"}, behind=behind)
    until(lambda: job_state(api, job) == "cancelled")
    until(lambda: disconnects(api) == 1)
    assert len(api.services.waiter) == 0
    with api.client() as client:
        assert 'outcome="failed"' not in client.get("/metrics").text


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [(WRITE, {"text": "x"}, {}), (READ, {"question": "x"}, {"Idempotency_Key": "k-1"})],
)
def test_nothing_else_is_cancelled(
    api: Api, tenant: UUID, path: str, body: dict[str, str], headers: dict[str, str]
) -> None:
    job = hang_up(api, tenant, path, body, **headers)
    until(lambda: disconnects(api) == 1)
    assert job_state(api, job) == "queued"


def test_a_request_that_is_given_up_while_it_is_accepted_takes_nothing_along(
    api: Api, client: httpx.Client, tenant: UUID
) -> None:
    kind = api.services.kinds["write"]
    jobs = [JobRequest(tenant, uuid7(), kind, "interactive", '{"text":"x"}', store="journal") for _ in range(20)]

    async def give_up() -> None:
        requests = [asyncio.create_task(_accept(api.services, job)) for job in jobs]
        await asyncio.sleep(0)  # each has handed its job to the writer's thread
        for request in requests:
            request.cancel()
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)

    asyncio.run_coroutine_threadsafe(give_up(), api.loop).result(10)
    assert client.post(WRITE, json={"text": "x"}).status_code == 202
    assert job_count(api, tenant) == len(jobs) + 1


# Idempotency keys -----------------------------------------------------------------------------------------------------


def keyed(client: httpx.Client, key: str, text: str = "x", **headers: str) -> httpx.Response:
    return client.post(WRITE, json={"text": text}, headers={"Idempotency-Key": key, **headers})


def test_a_202_is_repeated_as_it_was(api: Api, client: httpx.Client, tenant: UUID) -> None:
    first = keyed(client, "a")
    again = keyed(client, "a")
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["location"] == first.headers["location"]
    finish(api, tenant, UUID(first.json()["id"]), result={"revision": 1})
    assert keyed(client, "a").content == first.content
    assert job_count(api, tenant) == 1


def test_a_202_after_a_wait_is_repeated_too(api: Api, client: httpx.Client, tenant: UUID) -> None:
    first = keyed(client, "a", Prefer="wait=1")
    assert first.status_code == 202
    finish(api, tenant, UUID(first.json()["id"]), result={"revision": 1})
    assert keyed(client, "a", Prefer="wait=1").content == first.content


def test_a_result_is_repeated(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, WRITE, key="a")
    job = open_job(api, tenant)
    early = keyed(client, "a")
    assert early.status_code == 409
    assert (early.json()["type"], early.json()["job"]) == ("/problems/idempotency-conflict", str(job))
    finish(api, tenant, job, result={"revision": 1})
    first = sent.result(20)
    assert first.status_code == 201
    for headers in ({}, {"Prefer": "wait=5"}):
        again = keyed(client, "a", **headers)
        assert (again.status_code, again.content) == (201, first.content)
    assert job_count(api, tenant) == 1


def test_a_problem_is_repeated(api: Api, client: httpx.Client, tenant: UUID) -> None:
    sent = post(client, WRITE, key="a")
    finish(api, tenant, open_job(api, tenant), "failed", error=DocumentExists().as_json())
    first = sent.result(20)
    again = keyed(client, "a")
    assert first.status_code == again.status_code == 409
    assert first.json() == again.json()


def test_another_body_with_the_same_key_is_refused(api: Api, client: httpx.Client, tenant: UUID) -> None:
    first = keyed(client, "a")
    other = keyed(client, "a", "y")
    assert other.status_code == 409
    assert other.json()["job"] == first.json()["id"]
    assert keyed(client, "b", "y").status_code == 202
    assert job_count(api, tenant) == 2


def test_a_key_belongs_to_its_route_and_its_tenant(api: Api, client: httpx.Client, tenant: UUID) -> None:
    api.store(tenant, "other")
    first = keyed(client, "a").json()["id"]
    elsewhere = client.post("/v1/stores/other/memories", json={"text": "x"}, headers={"Idempotency-Key": "a"})
    assert elsewhere.status_code == 202
    assert elsewhere.json()["id"] != first
    with api.client(api.key(api.tenant())) as stranger:
        assert keyed(stranger, "a").json()["id"] != first


def test_a_refused_request_leaves_its_key_free(client: httpx.Client) -> None:
    missing = client.post("/v1/stores/none/memories", json={"text": "x"}, headers={"Idempotency-Key": "a"})
    assert missing.status_code == 404
    assert keyed(client, "k", "").status_code == 422
    assert keyed(client, "k").status_code == 202


def test_a_key_that_is_none(client: httpx.Client) -> None:
    for key in (b"", b"k" * 256, "ä".encode()):
        answer = client.post(WRITE, json={"text": "x"}, headers=[(b"Idempotency-Key", key)])
        assert answer.status_code == 422, key
        assert answer.json()["errors"][0]["field"] == "Idempotency-Key"
    answer = client.post(WRITE, json={"text": "x"}, headers=[(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"a")])
    assert answer.status_code == 422
    (problem,) = answer.json()["errors"]
    assert (problem["field"], "more than once" in problem["message"]) == ("Idempotency-Key", True)


def test_a_retry_with_a_key_is_done_once(api: Api, client: httpx.Client, tenant: UUID) -> None:
    job = UUID(client.post(WRITE, json={"text": "x"}).json()["id"])
    held = claim(api, tenant, job)
    with api.database.app.direct() as tx:
        row = {"tenant": tenant, "job": job, "token": held.lease_token}
        tx.row("finish_job", **row, state="dead", result=None, error="{}", reason=None)
    first = client.post(f"/v1/jobs/{job}/retry", headers={"Idempotency-Key": "r"})
    again = client.post(f"/v1/jobs/{job}/retry", headers={"Idempotency-Key": "r"})
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert job_state(api, job) == "queued"
    other = client.post(f"/v1/jobs/{job}/retry", headers={"Idempotency-Key": "r"}, content=b"x")
    assert (other.status_code, other.json()["type"]) == (409, "/problems/idempotency-conflict")
