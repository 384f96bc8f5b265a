"""/admin through HTTP: tenants, keys and queues, for operators alone."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import httpx
import psycopg
import pytest

from core.clock import now, rfc3339
from core.ids import uuid7
from core.store.database import POOL_SECONDS
from tests.contract.server import ALL, Api, running
from workers.queues import QUEUES

ROUTES = [
    ("POST", "/tenants"), ("GET", "/tenants"), ("GET", "/tenants/{id}"), ("PATCH", "/tenants/{id}"), ("POST", "/keys"),
    ("GET", "/keys"), ("DELETE", "/keys/{id}"), ("GET", "/queues"), ("GET", "/queues/write.bulk/dead"),
    ("POST", "/queues/write.bulk/retry"), ("POST", "/queues/write.bulk/purge"), ("GET", "/budgets"), ("PUT", "/budgets"),
    ("GET", "/models"), ("GET", "/models/m"), ("PUT", "/models/m"), ("DELETE", "/models/m"),
    ("PUT", "/tenants/{id}/stores/journal"),
]  # fmt: skip


@pytest.fixture
def operator(api: Api) -> Iterator[httpx.Client]:
    with api.client(api.operator_key()) as client:
        client.base_url = f"{api.url}/v1/admin"
        yield client


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_only_operators_reach_it(api: Api, tenant: UUID, method: str, path: str) -> None:
    path = "/v1/admin" + path.replace("{id}", str(tenant))
    for secret, status in ((None, 401), (f"mun_{'b' * 43}", 401), (api.key(tenant), 403)):
        with api.client(secret) as client:
            # The body is wrong in every way: the key is checked before it is looked at.
            refused = client.request(method, path, content=b"{" if method in ("POST", "PATCH") else None)
            assert refused.status_code == status
    # And its pool is opened for no one else.
    operator_db = api.services.operator_db
    assert operator_db is not None
    assert operator_db._pool.closed


def test_every_route_below_admin_is_in_that_table(api: Api) -> None:
    served = {
        (method.upper(), path.removeprefix("/v1/admin").replace("{queue}", "write.bulk"))
        for path, operations in api.app.openapi()["paths"].items() if path.startswith("/v1/admin")
        for method in operations
    }  # fmt: skip
    names = {"{tenant}": "{id}", "{key}": "{id}", "{name}": "m", "{store}": "journal"}
    for name, example in names.items():
        served = {(method, path.replace(name, example)) for method, path in served}
    assert served == set(ROUTES)


def test_a_tenant_is_made_shown_changed_and_listed(operator: httpx.Client) -> None:
    made = operator.post("/tenants", json={"name": "acme", "maxRequestsPerSecond": 50})
    assert made.status_code == 201
    tenant = made.json()
    assert made.headers["Location"] == f"/v1/admin/tenants/{tenant['id']}"
    assert tenant["maxRequestsPerSecond"] == 50
    assert tenant["maxQueuedJobs"] == 100_000
    assert operator.get(f"/tenants/{tenant['id']}").json() == tenant
    changed = operator.patch(f"/tenants/{tenant['id']}", json={"weight": 3, "maxRequestsPerSecond": None})
    assert changed.status_code == 200
    expected = {**tenant, "weight": 3}
    del expected["maxRequestsPerSecond"]
    assert changed.json() == expected
    second = operator.post("/tenants", json={"name": "other"}).json()
    page = operator.get("/tenants", params={"limit": 1}).json()
    assert page["items"] == [expected]
    assert operator.get("/tenants", params={"cursor": page["nextCursor"]}).json() == {"items": [second]}
    assert operator.post("/tenants", json={"name": "acme"}).status_code == 409
    assert operator.get(f"/tenants/{uuid7()}").status_code == 404
    assert operator.patch(f"/tenants/{uuid7()}", json={"weight": 1}).status_code == 404


@pytest.mark.parametrize("field", ["id", "tenantId", "name", "createdAt", "max_queued_jobs_"])
def test_what_a_tenant_is_never_changes(operator: httpx.Client, tenant: UUID, field: str) -> None:
    """M11."""
    before = operator.get(f"/tenants/{tenant}").json()
    refused = operator.patch(f"/tenants/{tenant}", json={"weight": 9, field: str(uuid7())})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == field
    assert operator.get(f"/tenants/{tenant}").json() == before


@pytest.mark.parametrize("scopes", [["read"], ["write", "manage"], list(ALL)])
@pytest.mark.parametrize("stores", ["*", ["journal"], ["notes", "a"]])
def test_a_minted_key_may_do_what_was_asked_and_no_more(
    api: Api, operator: httpx.Client, tenant: UUID, scopes: list[str], stores: str | list[str]
) -> None:
    """H13: by what the routes say, not by what the answer claims."""
    body = {"tenant": str(tenant), "name": "k", "scopes": scopes, "stores": stores}
    made = operator.post("/keys", json=body)
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    key = made.json()
    assert key["scopes"] == scopes
    assert key["stores"] == (stores if stores == "*" else sorted(stores))
    sees = stores == "*" or "journal" in stores
    probes = {
        "read": ("GET", "/v1/stores/journal", 200),
        "write": ("POST", "/v1/stores/journal/memories", 202),
        "manage": ("PUT", "/v1/stores/journal", 200),
    }
    with api.client(key["secret"]) as client:
        for scope, (method, path, status) in probes.items():
            answer = client.request(method, path, json={"text": "x"} if scope == "write" else None)
            assert answer.status_code == (status if scope in scopes and sees else 403), (scope, answer.text)
        assert client.get("/v1/admin/tenants").status_code == 403
    listed = operator.get("/keys", params={"tenant": str(tenant)}).json()["items"]
    assert listed == [{name: value for name, value in key.items() if name != "secret"}]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "k", "scopes": ["read"], "stores": "*"}, "tenant"),
        ({"name": "k", "tenant": "T", "scopes": ["read"]}, "stores"),
        ({"name": "k", "tenant": "T", "scopes": [], "stores": "*"}, "scopes"),
        ({"name": "k", "tenant": "T", "scopes": ["admin"], "stores": "*"}, "scopes[0]"),
        ({"name": "k", "tenant": "T", "scopes": ["operator"]}, "scopes"),
        ({"name": "k", "scopes": ["operator", "read"]}, "scopes"),
        ({"name": "k", "scopes": ["operator"], "stores": "*"}, "scopes"),
        ({"name": "k", "tenant": "T", "scopes": ["read"], "store": ["journal"], "stores": "*"}, "store"),
        (
            {"name": "k", "tenant": "T", "scopes": ["read"], "stores": "*", "expiresAt": "2020-01-01T00:00:00Z"},
            "expiresAt",
        ),
        ({"name": "k", "tenant": "T", "scopes": ["read"], "stores": "*", "expiresAt": "soon"}, "expiresAt"),
        ({"name": "k", "tenant": "me", "scopes": ["read"], "stores": "*"}, "tenant"),
        ({"name": "", "tenant": "T", "scopes": ["read"], "stores": "*"}, "name"),
    ],
)
def test_a_key_is_never_wider_than_it_says(
    api: Api, operator: httpx.Client, tenant: UUID, body: dict[str, object], field: str
) -> None:
    if body.get("tenant") == "T":
        body = {**body, "tenant": str(tenant)}
    refused = operator.post("/keys", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == field
    assert operator.get("/keys", params={"tenant": str(tenant)}).json()["items"] == []
    assert len(operator.get("/keys").json()["items"]) == 1  # the one that asks


def test_stores_of_a_key_are_names(operator: httpx.Client, tenant: UUID) -> None:
    for stores in ([], ["*"], "journal", [1], None):
        body = {"name": "k", "tenant": str(tenant), "scopes": ["read"], "stores": stores}
        refused = operator.post("/keys", json=body)
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["field"].startswith("stores")
        assert "must be" in error["message"] or "is required" in error["message"]


def test_an_operators_key_is_minted_and_revoked(api: Api, tenant: UUID, redis_url: str) -> None:
    with (
        # What revokes a key has forgotten it at once, however long a key that was looked up is trusted.
        running(api.database, redis_url, auth_cache_seconds=60) as strict,
        strict.client(api.operator_key()) as operator,
    ):
        until = rfc3339(now() + timedelta(days=1))
        made = operator.post("/v1/admin/keys", json={"name": "b", "scopes": ["operator"], "expiresAt": until}).json()
        assert made["expiresAt"] == until
        assert "tenant" not in made
        theirs = operator.post(
            "/v1/admin/keys", json={"name": "k", "tenant": str(tenant), "scopes": ["read"], "stores": "*"}
        ).json()
        with strict.client(made["secret"]) as second, strict.client(theirs["secret"]) as agent:
            assert second.get("/v1/admin/queues").status_code == 200
            assert agent.get("/v1/stores").status_code == 200
            for key in (made, theirs):
                assert operator.delete(f"/v1/admin/keys/{key['id']}").status_code == 204
            assert second.get("/v1/admin/queues").status_code == 401
            assert agent.get("/v1/stores").status_code == 401
        assert operator.delete(f"/v1/admin/keys/{made['id']}").status_code == 204
        assert operator.delete(f"/v1/admin/keys/{uuid7()}").status_code == 404
        revoked = operator.get("/v1/admin/keys", params={"tenant": str(tenant)}).json()["items"]
        assert "revokedAt" in revoked[0]


def test_keys_of_no_tenant_are_refused(operator: httpx.Client) -> None:
    """C1: a misspelt filter never means all."""
    assert operator.get("/keys", params={"tenant": str(uuid7())}).status_code == 404
    assert operator.get("/keys", params={"tenant": "acme"}).status_code == 422
    assert operator.get("/keys", params={"tenat": str(uuid7())}).status_code == 422


def test_an_idempotency_key_is_refused_rather_than_ignored(operator: httpx.Client) -> None:
    refused = operator.post("/tenants", json={"name": "x"}, headers={"Idempotency-Key": "1"})
    assert refused.status_code == 422
    assert operator.get("/tenants").json()["items"] == []


def test_queues_show_backlog_and_dead_letters_of_all_tenants(api: Api, operator: httpx.Client, tenant: UUID) -> None:
    other = api.tenant()
    first, second = add_dead(api, tenant, 1)[0], add_dead(api, other, 1)[0]
    shown = operator.get("/queues").json()
    assert [queue["queue"] for queue in shown["queues"]] == sorted(QUEUES), "no queue that nobody serves"
    queue = next(queue for queue in shown["queues"] if queue["queue"] == "write.bulk")
    assert queue["deadJobs"] == 2
    assert queue["readyJobs"] == 0
    page = operator.get("/queues/write.bulk/dead", params={"limit": 1}).json()
    assert [(job["id"], job["tenant"]) for job in page["items"]] == [(str(first), str(tenant))]
    assert page["items"][0]["error"]["type"] == "/problems/job-failed"
    rest = operator.get("/queues/write.bulk/dead", params={"cursor": page["nextCursor"]}).json()
    assert [job["id"] for job in rest["items"]] == [str(second)]
    only = operator.get("/queues/write.bulk/dead", params={"tenant": str(other)}).json()
    assert only == rest
    assert operator.get("/queues/write.interactive/dead").json() == {"items": []}
    assert operator.get("/queues/writes/dead").status_code == 404


def test_dead_letters_are_retried_and_purged_by_tenant_or_job(api: Api, operator: httpx.Client, tenant: UUID) -> None:
    other = api.tenant()
    jobs, foreign = add_dead(api, tenant, 3), add_dead(api, other, 1)
    assert operator.post("/queues/write.bulk/retry", json={"job": str(jobs[0])}).json() == {"retried": 1, "more": False}
    assert operator.post("/queues/write.bulk/retry", json={"job": str(jobs[0])}).json()["retried"] == 0
    assert operator.post("/queues/write.bulk/purge", json={"job": str(jobs[1])}).json() == {"purged": 1, "more": False}
    assert operator.post("/queues/write.bulk/retry", json={"tenant": str(tenant)}).json()["retried"] == 1
    assert operator.post("/queues/read.interactive/purge", json={}).json()["purged"] == 0
    with api.client(api.key(tenant)) as client:
        states = [client.get(f"/v1/jobs/{job}") for job in jobs]
        assert [state.status_code for state in states] == [200, 404, 200]
        assert states[0].json()["state"] == states[2].json()["state"] == "queued"
        assert states[0].json()["attempt"] == 0
    left = operator.get("/queues/write.bulk/dead").json()["items"]
    assert [job["id"] for job in left] == [str(foreign[0])]
    assert operator.post("/queues/write.bulk/purge", json={}).json()["purged"] == 1
    for body in ({"tenat": str(other)}, {"job": "x"}, []):
        assert operator.post("/queues/write.bulk/purge", json=body).status_code == 422


def test_without_an_operators_database_there_is_no_admin(api: Api, redis_url: str) -> None:
    with running(api.database, redis_url, database_operator_url="") as bare, bare.client(api.operator_key()) as client:
        refused = client.get("/v1/admin/tenants")
    assert refused.status_code == 503
    assert refused.json()["type"] == "/problems/unavailable"
    assert "DATABASE_OPERATOR_URL" in refused.json()["detail"]


def test_requests_a_second_are_a_quota(api: Api, operator: httpx.Client, tenant: UUID) -> None:
    operator.patch(f"/tenants/{tenant}", json={"maxRequestsPerSecond": 3})
    with api.client(api.key(tenant)) as client:
        answers = [client.get("/v1/stores") for _ in range(30)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert refused[0].json()["type"] == "/problems/quota"
    assert int(refused[0].headers["Retry-After"]) >= 1
    with api.client(api.key(api.tenant())) as client:
        assert {client.get("/v1/stores").status_code for _ in range(10)} == {200}


def test_queued_jobs_are_a_quota(api: Api, operator: httpx.Client, tenant: UUID) -> None:
    operator.patch(f"/tenants/{tenant}", json={"maxQueuedJobs": 2})
    with api.client(api.key(tenant)) as client:
        answers = [client.post("/v1/stores/journal/memories", json={"text": "x"}).status_code for _ in range(4)]
    assert answers == [202, 202, 429, 429]


def test_500_bad_keys_at_once_do_not_hold_up_a_good_one(api: Api, tenant: UUID) -> None:
    """M13."""
    good = api.key(tenant)
    limits = httpx.Limits(max_connections=600)

    async def run() -> tuple[list[int], list[float]]:
        async with httpx.AsyncClient(base_url=api.url, timeout=60, limits=limits) as client:
            await client.get("/v1/stores", headers={"Authorization": f"Bearer {good}"})
            flood = [
                asyncio.ensure_future(client.get("/v1/stores", headers={"Authorization": f"Bearer mun_{i:043d}"}))
                for i in range(500)
            ]
            statuses: list[int] = []
            seconds: list[float] = []
            while not all(task.done() for task in flood) or len(statuses) < 20:
                began = time.monotonic()
                answer = await client.get("/v1/stores", headers={"Authorization": f"Bearer {good}"})
                seconds.append(time.monotonic() - began)
                statuses.append(answer.status_code)
            assert {task.result().status_code for task in flood} == {401}
            return statuses, seconds

    statuses, seconds = asyncio.run(run())
    assert set(statuses) == {200}
    assert max(seconds) < POOL_SECONDS, "what waits for a connection waits so long"  # the flood's own client takes half
    assert api.database.app.waiting() == 0


def add_dead(api: Api, tenant: UUID, count: int) -> list[UUID]:
    ids = [uuid7() for _ in range(count)]
    with psycopg.connect(api.database.admin, autocommit=True) as admin:
        for job_id in ids:
            admin.execute(
                "insert into jobs (tenant_id, job_id, kind, queue, state, payload_bytes, attempt, finished_at, error)"
                " values (%s, %s, 'batch', 'write.bulk', 'dead', 2, 5, clock_timestamp(),"
                """ '{"type": "/problems/job-failed", "title": "The job failed", "status": 500, "detail": "d"}')""",
                (tenant, job_id),
            )
            admin.execute(
                "insert into job_payloads (tenant_id, job_id, payload) values (%s, %s, '{}')", (tenant, job_id)
            )
    return ids
