"""/stores through HTTP: making, configuring, listing, erasing, and who may."""

from uuid import UUID

import httpx
import psycopg
import pytest

from core.models import builtin
from tests.contract.server import ALL, Api, running

DEFAULT: dict[str, object] = {
    "version": 1,
    "strategy": "simple",
    "policy": dict.fromkeys(("planning", "screening", "judging", "coverage", "looping", "consolidation"), False),
    "index": {"version": 2, "lexical": True, "entities": True, "temporal": True},
    "view": {"maxItems": 16, "order": "time"},
}
if builtin.installed():
    DEFAULT["embedding"] = "builtin"


def test_a_store_is_made_shown_replaced_and_listed(client: httpx.Client) -> None:
    made = client.put("/v1/stores/notes")
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/stores/notes"
    body = made.json()
    assert body["name"] == "notes"
    assert body["configuration"] == DEFAULT
    assert body["revision"] == 0
    assert len(body["policyHash"]) == 64

    shown = client.get("/v1/stores/notes")
    assert (shown.status_code, shown.json(), shown.headers["ETag"]) == (200, body, made.headers["ETag"])

    replaced = client.put("/v1/stores/notes", json={"view": {"maxItems": 4}})
    assert replaced.status_code == 200
    assert replaced.json()["configuration"]["view"] == {"maxItems": 4, "order": ""}
    assert "index" not in replaced.json()["configuration"]
    assert replaced.json()["policyHash"] != body["policyHash"]
    assert replaced.headers["ETag"] != made.headers["ETag"]
    assert "Location" not in replaced.headers

    listed = client.get("/v1/stores").json()
    assert [store["name"] for store in listed["items"]] == ["journal", "notes"]
    assert listed["items"][1] == replaced.json()
    assert "nextCursor" not in listed


def test_if_match_is_honoured(client: httpx.Client) -> None:
    stale = client.put("/v1/stores/notes").headers["ETag"]
    fresh = client.put("/v1/stores/notes", json={}, headers={"If-Match": stale}).headers["ETag"]
    for method, path in (("PUT", "notes"), ("DELETE", "notes"), ("PUT", "other")):
        refused = client.request(method, f"/v1/stores/{path}", headers={"If-Match": stale})
        assert refused.status_code == 412
        assert refused.json()["type"] == "/problems/precondition-failed"
    assert client.get("/v1/stores/notes").headers["ETag"] == fresh
    assert client.get("/v1/stores/other").status_code == 404
    assert client.put("/v1/stores/notes", headers={"If-Match": f'"1", {fresh}'}).status_code == 200
    assert client.put("/v1/stores/notes", headers={"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"versoin": 1}, "versoin"),
        ({"judge": "jev"}, "judge"),
        ({"index": {"version": 3}}, "index.version"),
        ({"index": {"supersedes": True}}, "index.supersedes"),
        ({"view": {"maxItems": 17}}, "view.maxItems"),
        ({"modelCache": "a"}, "modelCache"),
        ([], "body"),
    ],
)
def test_a_configuration_that_cannot_work_names_its_field(client: httpx.Client, body: object, field: str) -> None:
    refused = client.put("/v1/stores/notes", json=body)
    assert refused.status_code == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert refused.json()["errors"][0]["field"] == field
    assert client.get("/v1/stores/notes").status_code == 404


def test_a_body_that_is_no_json_is_refused(client: httpx.Client) -> None:
    for content in (b"{", b"\xff", b'{"view": NaN}'):
        assert client.put("/v1/stores/notes", content=content).status_code == 422
    assert client.get("/v1/stores/notes").status_code == 404


@pytest.mark.parametrize("name", ["A", "-a", "a.b", "a" * 64, "%00", "a%00", "%ED%A0%80"])
def test_a_name_that_is_none(client: httpx.Client, name: str) -> None:
    refused = client.put(f"/v1/stores/{name}")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "store"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/memories")):
        assert client.request(method, f"/v1/stores/{name}{path}", json={"text": "x"}).status_code == 404


def test_a_list_comes_in_pages(client: httpx.Client) -> None:
    for name in ("a", "b", "c"):
        client.put(f"/v1/stores/{name}")
    first = client.get("/v1/stores", params={"limit": 3}).json()
    assert [store["name"] for store in first["items"]] == ["a", "b", "c"]
    rest = client.get("/v1/stores", params={"limit": 3, "cursor": first["nextCursor"]}).json()
    assert [store["name"] for store in rest["items"]] == ["journal"]
    assert "nextCursor" not in rest


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 1001}, {"cursor": "x"}, {"nmae": "a"}])
def test_a_list_refuses_what_it_does_not_know(client: httpx.Client, query: dict[str, str]) -> None:
    refused = client.get("/v1/stores", params=query)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == next(iter(query))


@pytest.mark.usefixtures("workers")
def test_an_erased_store_is_gone_and_its_name_is_free(client: httpx.Client) -> None:
    old = client.put("/v1/stores/notes").headers["ETag"]
    written = client.post("/v1/stores/notes/memories", json={"text": "a secret"}, headers={"Prefer": "wait=30"})
    assert written.status_code == 201
    erased = client.delete("/v1/stores/notes", headers={"Prefer": "wait=30"})
    assert erased.status_code == 200
    assert erased.headers["Preference-Applied"] == "wait"
    assert client.get("/v1/stores/notes").status_code == 404
    again = client.put("/v1/stores/notes")
    assert again.status_code == 201
    assert again.headers["ETag"] != old
    assert client.get("/v1/stores/notes/records").json()["items"] == []


def test_erasing_is_a_job(client: httpx.Client) -> None:
    accepted = client.delete("/v1/stores/journal")
    assert accepted.status_code == 202
    job = client.get(accepted.headers["Location"]).json()
    assert (job["kind"], job["queue"], job["store"]) == ("erase", "write.bulk", "journal")
    assert client.delete("/v1/stores/nowhere").status_code == 404


def test_a_key_for_some_stores_reaches_only_those(api: Api, tenant: UUID) -> None:
    api.store(tenant, "mine")
    api.store(tenant, "other")
    with api.client(api.key(tenant, ALL, ["mine", "planned"])) as client:
        assert [store["name"] for store in client.get("/v1/stores").json()["items"]] == ["mine"]
        assert client.get("/v1/stores/mine").status_code == 200
        assert client.put("/v1/stores/planned").status_code == 201
        answers = [client.request(method, f"/v1/stores/{name}") for method in ("GET", "PUT", "DELETE")
                   for name in ("other", "absent")]  # fmt: skip
        assert {answer.status_code for answer in answers} == {403}
        # The same words whether the store exists or not.
        assert len({answer.text for answer in answers}) == 1
    with api.client(api.key(tenant)) as client:
        assert client.get("/v1/stores/absent").status_code == 404


@pytest.mark.parametrize("scopes", [("read",), ("write",), ("consolidate",), ("read", "write", "consolidate")])
def test_an_unauthorised_change_leaves_no_trace(api: Api, tenant: UUID, scopes: tuple[str, ...]) -> None:
    """S32."""
    before = rows(api)
    with api.client(api.key(tenant, scopes)) as client:
        assert client.put("/v1/stores/notes").status_code == 403
        assert client.delete("/v1/stores/journal").status_code == 403
    for secret in (None, f"mun_{'a' * 43}"):
        with api.client(secret) as client:
            for path in ("/v1/stores/journal/memories", "/v1/stores/notes/memories"):
                assert client.post(path, json={"text": "x"}).status_code == 401
            refused = client.put("/v1/stores/notes")
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"] == "Bearer"
    with api.client(api.operator_key()) as client:
        assert client.put("/v1/stores/notes").status_code == 403
        assert client.get("/v1/stores").status_code == 403
    assert rows(api) == before


def test_another_tenants_store_is_as_absent_as_any(api: Api, tenant: UUID) -> None:
    other = api.tenant()
    api.store(other, "theirs")
    with api.client(api.key(tenant)) as client:
        for method in ("GET", "DELETE"):
            foreign, absent = (client.request(method, f"/v1/stores/{name}") for name in ("theirs", "absent"))
            assert foreign.status_code == absent.status_code == 404
            assert foreign.text.replace("theirs", "absent") == absent.text
        assert client.put("/v1/stores/theirs", json={}).status_code == 201
    with api.client(api.key(other)) as client:
        assert client.get("/v1/stores/theirs").json()["configuration"] == DEFAULT


def test_the_tenant_comes_from_the_key_alone(api: Api, tenant: UUID) -> None:
    """L2: no header and no parameter names a tenant."""
    other = api.tenant()
    api.store(other, "theirs")
    claims = {"X-Tenant": str(other), "X-Tenant-Id": str(other), "user_id": str(other), "X-User-Id": str(other)}
    with api.client(api.key(tenant)) as client:
        listed = client.get("/v1/stores", headers=claims).json()["items"]
        assert [store["name"] for store in listed] == ["journal"]
        assert client.get("/v1/stores/theirs", headers=claims).status_code == 404
        for name in ("tenant", "tenant_id", "user_id"):
            assert client.get("/v1/stores", params={name: str(other)}).status_code == 422


def test_an_evaluation_may_name_a_model_cache(api: Api, tenant: UUID, redis_url: str) -> None:
    with running(api.database, redis_url, allow_model_cache=True) as lenient, lenient.client(api.key(tenant)) as client:
        made = client.put("/v1/stores/notes", json={"modelCache": "run-1"})
    assert made.status_code == 201
    assert made.json()["configuration"]["modelCache"] == "run-1"


def rows(api: Api) -> list[int]:
    with psycopg.connect(api.database.admin) as admin:
        return [
            admin.execute(f"select count(*) from {table}".encode()).fetchone()[0]  # type: ignore[index]
            for table in ("stores", "jobs", "job_payloads", "documents", "idempotency_keys")
        ]
