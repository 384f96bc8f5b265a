"""Every route × every scope × another tenant's ids (H12, S31): made from the OpenAPI document, so that no route escapes."""

from uuid import UUID

import httpx
import psycopg
import pytest

from tests.contract.server import ALL, Api

# Which scopes open a route, any of them; none: it is open to all. A route that is missing here fails the first test.
NEEDS: dict[str, tuple[str, ...]] = {
    "GET /healthz": (),
    "GET /readyz": (),
    "GET /metrics": (),
    "GET /problems/{slug}": (),
    "GET /v1/stores": ("read",),
    "PUT /v1/stores/{store}": ("manage",),
    "GET /v1/stores/{store}": ("read",),
    "DELETE /v1/stores/{store}": ("manage",),
    "POST /v1/stores/{store}/memories": ("write",),
    "POST /v1/stores/{store}/conversations": ("write",),
    "POST /v1/stores/{store}/memories:batch": ("write",),
    "POST /v1/stores/{store}/reads": ("read",),
    "POST /v1/stores/{store}/searches": ("read",),
    "GET /v1/stores/{store}/export": ("read",),
    "GET /v1/stores/{store}/records": ("read",),
    "GET /v1/stores/{store}/records/{id}": ("read",),
    "GET /v1/stores/{store}/records/{id}/messages": ("read",),
    "DELETE /v1/stores/{store}/records/{id}": ("manage",),
    "POST /v1/stores/{store}/erasures": ("manage",),
    "GET /v1/jobs": ("read",),
    "GET /v1/jobs/{job}": ("read", "write"),
    "GET /v1/jobs/{job}/events": ("read", "write"),
    "POST /v1/jobs/{job}/cancel": ("write",),
    "POST /v1/jobs/{job}/retry": ("write",),
    "DELETE /v1/jobs/{job}": ("write",),
    "POST /v1/stores/{store}/imports": ("write",),
    "GET /v1/imports": ("read",),
    "GET /v1/imports/{id}": ("read", "write"),
    "HEAD /v1/imports/{id}": ("read", "write"),
    "PATCH /v1/imports/{id}": ("write",),
    "POST /v1/imports/{id}/preview": ("write",),
    "POST /v1/imports/{id}/start": ("write",),
    "POST /v1/imports/{id}/pause": ("write",),
    "POST /v1/imports/{id}/resume": ("write",),
    "POST /v1/imports/{id}/cancel": ("write",),
    "GET /v1/budgets": ("read",),
    "GET /v1/usage": ("read",),
    "GET /v1/admin/budgets": ("operator",),
    "PUT /v1/admin/budgets": ("operator",),
    "GET /v1/admin/models": ("operator",),
    "PUT /v1/admin/models/{name}": ("operator",),
    "GET /v1/admin/models/{name}": ("operator",),
    "DELETE /v1/admin/models/{name}": ("operator",),
    "PUT /v1/admin/tenants/{tenant}/stores/{store}": ("operator",),
    "POST /v1/admin/tenants": ("operator",),
    "GET /v1/admin/tenants": ("operator",),
    "GET /v1/admin/tenants/{tenant}": ("operator",),
    "PATCH /v1/admin/tenants/{tenant}": ("operator",),
    "POST /v1/admin/keys": ("operator",),
    "GET /v1/admin/keys": ("operator",),
    "DELETE /v1/admin/keys/{key}": ("operator",),
    "GET /v1/admin/queues": ("operator",),
    "GET /v1/admin/queues/{queue}/dead": ("operator",),
    "POST /v1/admin/queues/{queue}/retry": ("operator",),
    "POST /v1/admin/queues/{queue}/purge": ("operator",),
}
TENANTS = {route: needs for route, needs in NEEDS.items() if needs and needs != ("operator",)}
BODIES = {
    "memories": {"text": "x"},
    "conversations": {"sessionId": "s", "messages": [{"role": "user", "content": "x"}]},
    "memories:batch": {"items": [{"text": "x"}]},
    "reads": {"question": "x"},
    "searches": {"query": "x"},
    "erasures": {"sessionId": "s"},
    "imports": {"size": 3},
}


class World:
    """A has the stores `journal` and `theirs`, a document in each, an ended job, an import; B has only `journal`."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.a, self.b = api.tenant(), api.tenant()
        api.store(self.a, "theirs")
        with api.client(api.key(self.a)) as client:
            for store in ("journal", "theirs"):
                written = client.post(
                    f"/v1/stores/{store}/memories",
                    json={"text": "A's secret", "id": "d-1"},
                    headers={"Prefer": "wait=30"},
                )
                assert written.status_code == 201
            jobs = client.get("/v1/jobs", params={"store": "theirs"}).json()["items"]
            self.job = next(job["id"] for job in jobs if job["kind"] == "write")
            self.upload = client.post("/v1/stores/theirs/imports", json={"size": 3}).json()["id"]

    def ask(self, client: httpx.Client, route: str, *, store: str = "theirs", body: bool = True) -> httpx.Response:
        method, _, path = route.partition(" ")
        record_or_import = self.upload if path.startswith("/v1/imports") else "d-1"
        names = {"store": store, "id": record_or_import, "job": self.job, "tenant": self.a, "key": self.a, "name": "m"}
        url = path.format(slug="quota", queue="write.bulk", **names)
        if method == "PATCH" and path.startswith("/v1/imports"):
            return client.patch(url, content=b"[]\n", headers={"Upload-Offset": "0"})
        if method not in ("POST", "PUT", "PATCH"):
            return client.request(method, url)
        if not body:
            return client.request(method, url, content=b"{")
        return client.request(method, url, json=BODIES.get(path.rpartition("/")[2]))


@pytest.fixture
def world(api: Api, workers: None) -> World:
    return World(api)


def test_every_route_is_in_the_table(api: Api) -> None:
    served = {
        f"{method.upper()} {path}" for path, operations in api.app.openapi()["paths"].items() for method in operations
    }
    assert served == set(NEEDS)


def test_the_document_says_which_routes_need_a_key(api: Api) -> None:
    for path, operations in api.app.openapi()["paths"].items():
        for method, operation in operations.items():
            assert bool(operation.get("security")) == bool(NEEDS[f"{method.upper()} {path}"]), (method, path)


def test_without_a_good_key_nothing_opens(world: World) -> None:
    with psycopg.connect(world.api.database.admin, autocommit=True) as admin:
        revoked = world.api.key(world.a)
        admin.execute(
            "update api_keys set revoked_at = now() where key_id = (select max(key_id::text)::uuid from api_keys)"
        )
    for secret in (None, f"mun_{'c' * 43}", revoked):
        with world.api.client(secret) as client:
            for route, needs in NEEDS.items():
                answer = world.ask(client, route, body=False)
                assert (answer.status_code == 401) == bool(needs), (route, answer.text)
                assert not needs or answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_key_that_is_sent_twice_opens_nothing(world: World) -> None:
    """Which of the two counts would be a guess, and a proxy may have guessed otherwise."""
    good = f"Bearer {world.api.key(world.a)}"
    with world.api.client() as client:
        answer = client.get("/v1/stores", headers=[("Authorization", good), ("Authorization", good)])
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "Authorization is given more than once" in answer.json()["detail"]


def test_every_other_scope_is_refused_before_the_body_is_looked_at(world: World) -> None:
    for scope in ALL:
        with world.api.client(world.api.key(world.a, (scope,))) as client:
            for route, needs in NEEDS.items():
                if needs and scope not in needs:
                    answer = world.ask(client, route, body=False)
                    assert answer.status_code == 403, (scope, route, answer.text)


def test_the_right_scope_alone_opens_a_route(world: World) -> None:
    for route, needs in TENANTS.items():
        for scope in needs:
            if not route.startswith("DELETE /v1/stores"):  # what the other routes look at stays
                with world.api.client(world.api.key(world.a, (scope,))) as client:
                    answer = world.ask(client, route)
                    # What has ended can be neither retried nor resumed: 409 is past every check of the key.
                    assert answer.status_code in (200, 201, 202, 204, 409, 422), (route, answer.text)
                    assert answer.status_code != 422 or "imports" in route, (route, answer.text)


def test_an_operators_key_reaches_no_tenants_data(world: World) -> None:
    with world.api.client(world.api.operator_key()) as client:
        for route in TENANTS:
            assert world.ask(client, route, body=False).status_code == 403, route


def test_a_key_for_another_store_is_refused(world: World) -> None:
    with world.api.client(world.api.key(world.a, ALL, ["journal"])) as client:
        for route in TENANTS:
            if "{store}" in route:
                assert world.ask(client, route, body=False).status_code == 403, route
            elif "{" in route:
                assert world.ask(client, route).status_code == 404, route


@pytest.mark.parametrize("own_store", [False, True])
def test_another_tenants_ids_do_not_exist(world: World, own_store: bool) -> None:
    """With A's store, which B has not, and with B's own store of a name that A has too."""
    before = counts(world.api, world.a)
    with world.api.client(world.api.key(world.b)) as client:
        for route in TENANTS:
            if ("{id}" in route if own_store else "{" in route) and not route.startswith("PUT"):
                answer = world.ask(client, route, store="journal" if own_store else "theirs")
                assert_absent(route, answer)
    assert counts(world.api, world.a) == before


def assert_absent(route: str, answer: httpx.Response) -> None:
    if answer.status_code == 202:  # an erasure is a job; it ends by finding nothing
        pytest.fail(f"{route} accepted work on a foreign id: {answer.text}")
    assert answer.status_code == 404, (route, answer.text)
    assert "secret" not in answer.text


def test_two_tenants_with_equal_ids_see_their_own(world: World) -> None:
    with world.api.client(world.api.key(world.b)) as client:
        body = {"text": "B's own", "id": "d-1"}
        assert client.post("/v1/stores/journal/memories", json=body, headers={"Prefer": "wait=30"}).status_code == 201
        assert "B's own" in client.get("/v1/stores/journal/records/d-1").text
        assert "A's" not in client.get("/v1/stores/journal/records").text
        assert "A's" not in client.post("/v1/stores/journal/reads", json={"question": "secret"}).text
        assert {job["store"] for job in client.get("/v1/jobs").json()["items"]} == {"journal"}
        assert world.job not in client.get("/v1/jobs").text
    with world.api.client(world.api.key(world.a)) as client:
        assert "A's secret" in client.get("/v1/stores/journal/records/d-1").text


def counts(api: Api, tenant: UUID) -> list[int]:
    with psycopg.connect(api.database.admin) as admin:
        return [
            admin.execute(f"select count(*) from {table} where tenant_id = %s".encode(), (tenant,)).fetchone()[0]  # type: ignore[index]
            for table in ("stores", "jobs", "documents", "records", "messages", "erasures", "imports", "uploads")
        ]
