"""Every error is a problem with a page; health and metrics say what is so (S39, S41, H-parts of contract.md, Errors)."""

from uuid import UUID

import httpx
import pytest

from core.errors import PROBLEMS, MunimentError
from core.ids import uuid7
from tests.conftest import TestDatabase
from tests.contract.byhand import until
from tests.contract.server import Api, running
from tests.rows import execute

WRITE = "/v1/stores/journal/memories"


def check(answer: httpx.Response, status: int, kind: str) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["status"]) == (kind, status)
    assert problem["title"]
    assert problem["detail"]


def test_the_frameworks_own_errors_are_problems(api: Api, client: httpx.Client) -> None:
    check(client.get("/v1/nowhere"), 404, "/problems/not-found")
    check(client.get("/v1/stores/journal/layer"), 404, "/problems/not-found")
    check(client.get("/"), 404, "/problems/not-found")
    check(client.get("/v1/jobs/"), 404, "/problems/not-found")
    wrong_method = client.put(WRITE)
    check(wrong_method, 405, "about:blank")
    assert wrong_method.headers["allow"] == "POST"


def test_each_problem_has_a_page(client: httpx.Client) -> None:
    for error in PROBLEMS:
        page = client.get(f"/problems/{error.slug}")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/plain")
        assert error.title in page.text
        assert "What to do" in page.text
    check(client.get("/problems/none"), 404, "/problems/not-found")


def test_a_defect_shows_nothing_of_itself(
    api: Api, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("inner secret")

    monkeypatch.setattr(api.services.submitter, "accept", broken)
    answer = client.post(WRITE, json={"text": "x"})
    check(answer, 500, "/problems/job-failed")
    assert "secret" not in answer.text
    assert "KeyError" not in answer.text
    assert "KeyError at POST /stores/{store}/memories" in caplog.text
    monkeypatch.undo()
    assert client.post(WRITE, json={"text": "x"}).status_code == 202


def test_what_passes_says_when_to_come_again(
    api: Api, client: httpx.Client, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(api.database.admin, "update tenants set max_queued_jobs = 0")
    with api.client(api.key(tenant)) as limited:  # a new key: the limits are looked up with it
        answer = limited.post(WRITE, json={"text": "x"})
    check(answer, 429, "/problems/quota")
    assert int(answer.headers["retry-after"]) > 0


def test_read_only_refuses_writes_and_lets_reads_go_on(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with running(database, redis_url, readonly=True) as api, api.client(api.key(tenant)) as client:
        for method, path, body in (
            ("POST", WRITE, {"text": "x"}),
            ("POST", "/v1/stores/journal/conversations", {}),
            ("POST", "/v1/stores/journal/memories:batch", {}),
            ("POST", "/v1/stores/journal/erasures", {"sessionId": "s"}),
            ("DELETE", "/v1/stores/journal/records/a", None),
            ("DELETE", "/v1/stores/journal", None),
        ):
            answer = client.request(method, path, json=body)
            check(answer, 503, "/problems/read-only")
            assert "retry-after" in answer.headers
        assert client.get("/v1/stores/journal/records").status_code == 200
        read = client.post("/v1/stores/journal/reads", json={"question": "x"}, headers={"Prefer": "wait=0"})
        assert read.status_code == 202


def test_readiness_names_what_is_missing(api: Api, client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
    execute(api.database.admin, "delete from _yoyo_migration")
    missing = client.get("/readyz")
    assert missing.status_code == 503
    assert "migrations are missing" in missing.json()["reasons"][0]


def test_without_postgres_it_is_not_ready_and_says_503(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with running(database, redis_url) as api:
        secret = api.key(tenant)
        with api.client(secret) as client:
            assert client.get("/v1/jobs").status_code == 200
            others = (
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
            )
            home = database.server.superuser_dsn
            execute(home, f"alter database {database.name} allow_connections false")
            try:
                execute(home, others, database.name)
                unready = client.get("/readyz")
                assert unready.status_code == 503
                assert unready.json()["reasons"][0].startswith("postgres: ")
                answer = client.post(WRITE, json={"text": "x"})
                check(answer, 503, "/problems/unavailable")
                assert "retry-after" in answer.headers
            finally:
                execute(home, f"alter database {database.name} allow_connections true")
            until(lambda: client.post(WRITE, json={"text": "x"}).status_code == 202, 30)
            ready = client.get("/readyz")
            assert ready.status_code == 200, ready.text


def series(client: httpx.Client) -> set[str]:
    return {line.rpartition(" ")[0] for line in client.get("/metrics").text.splitlines() if not line.startswith("#")}


def test_no_id_ever_becomes_a_label(api: Api, client: httpx.Client) -> None:
    def visit() -> None:
        for path in (
            "/v1/jobs/{}",
            "/v1/stores/{}/records",
            "/v1/stores/journal/records/{}",
            "/nowhere/{}",
            "/problems/{}",
        ):
            client.get(path.format(uuid7()))
        client.post(f"/v1/stores/{uuid7()}/memories", json={"text": "x"})

    visit()
    series(client)
    before = series(client)
    for _ in range(200):
        visit()
    assert series(client) == before
    text = client.get("/metrics").text
    assert 'muniment_http_requests_total{class="4xx",outcome="refused",route="/jobs/{job}"}' in text
    assert 'route="none"' in text


def test_problems_of_a_job_read_back_as_they_were() -> None:
    for error in PROBLEMS:
        problem = error("why").as_json() if error.slug != "document-exists" else error().as_json()
        assert problem["status"] == error.status
    assert MunimentError().as_json()["detail"]
