"""Jobs through HTTP: what is shown to whom, and what may be done when."""

import json
from typing import Any
from uuid import UUID

import httpx

from tests.contract.byhand import finish
from tests.contract.server import Api
from tests.rows import execute, insert_jobs

WRITE = "/v1/stores/journal/memories"


def accept(client: httpx.Client, store: str = "journal") -> UUID:
    return UUID(client.post(f"/v1/stores/{store}/memories", json={"text": "x"}).json()["id"])


def listed(client: httpx.Client, **params: Any) -> list[str]:
    items: list[str] = []
    while True:
        page = client.get("/v1/jobs", params=params).json()
        items += [job["id"] for job in page["items"]]
        if "nextCursor" not in page:
            return items
        params["cursor"] = page["nextCursor"]


def test_jobs_are_listed_newest_first_by_pages(client: httpx.Client) -> None:
    made = [str(accept(client)) for _ in range(5)]
    for limit in (1, 2, 5):
        assert listed(client, limit=limit) == made[::-1]


def test_lists_filter_by_state_and_store(api: Api, client: httpx.Client, tenant: UUID) -> None:
    api.store(tenant, "other")
    first, second, third = accept(client), accept(client), accept(client, "other")
    finish(api, tenant, first, result={})
    assert listed(client, state="succeeded") == [str(first)]
    assert listed(client, state=["succeeded", "queued"], store="journal") == [str(second), str(first)]
    assert listed(client, store="other") == [str(third)]
    assert listed(client, store="none") == []
    child = insert_jobs(api.database.admin, tenant, "write.bulk", parent_id=first)[0]
    assert listed(client, parent=str(first)) == [str(child)]


def test_a_key_for_some_stores_sees_their_jobs_alone(api: Api, client: httpx.Client, tenant: UUID) -> None:
    for store in ("a", "b", "c"):
        api.store(tenant, store)
    made = {store: [str(accept(client, store)) for _ in range(3)] for store in ("a", "b", "c")}
    with api.client(api.key(tenant, stores=["a", "c"])) as some:
        expected = sorted(made["a"] + made["c"], reverse=True)
        for limit in (2, 100):
            assert listed(some, limit=limit) == expected
        assert listed(some, store="b") == []
        assert listed(some, store="c") == sorted(made["c"], reverse=True)
        hidden = made["b"][0]
        assert some.get(f"/v1/jobs/{made['a'][0]}").status_code == 200
        for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")):
            assert some.request(method, f"/v1/jobs/{hidden}{path}").status_code == 404
    assert client.get(f"/v1/jobs/{hidden}").json()["state"] == "queued"


def test_who_may_make_a_job_may_see_and_end_it(api: Api, client: httpx.Client, tenant: UUID) -> None:
    written = accept(client)
    asked = client.post("/v1/stores/journal/reads", json={"question": "x"}, headers={"Prefer": "wait=0"}).json()["id"]
    with api.client(api.key(tenant, ("write",))) as writer, api.client(api.key(tenant, ("read",))) as reader:
        assert writer.get(f"/v1/jobs/{written}").status_code == 200
        assert writer.get(f"/v1/jobs/{asked}").status_code == 403  # it would show what the store holds
        assert reader.get(f"/v1/jobs/{written}").status_code == 200
        assert reader.post(f"/v1/jobs/{written}/cancel").status_code == 403
        assert reader.post(f"/v1/jobs/{asked}/cancel").json()["state"] == "cancelled"
        assert writer.post(f"/v1/jobs/{written}/cancel").json()["state"] == "cancelled"
        assert writer.delete(f"/v1/jobs/{written}").status_code == 204


def test_a_job_shows_its_result_or_its_error(api: Api, client: httpx.Client, tenant: UUID) -> None:
    good, bad = accept(client), accept(client)
    finish(api, tenant, good, result={"revision": 1})
    error = {"type": "/problems/document-exists", "title": "t", "status": 409, "detail": "d"}
    finish(api, tenant, bad, "failed", error=error)
    job = client.get(f"/v1/jobs/{good}").json()
    assert (job["state"], job["result"], job["attempt"]) == ("succeeded", {"revision": 1}, 1)
    assert {"startedAt", "finishedAt"} <= job.keys()
    job = client.get(f"/v1/jobs/{bad}").json()
    assert (job["state"], job["error"]) == ("failed", error)


def test_what_may_be_done_depends_on_the_state(api: Api, client: httpx.Client, tenant: UUID) -> None:
    states = {state: accept(client) for state in ("queued", "succeeded", "failed", "dead", "cancelled")}
    for state in ("succeeded", "failed", "dead"):
        finish(api, tenant, states[state], state, result={}, error={})
    client.post(f"/v1/jobs/{states['cancelled']}/cancel")

    def status(method: str, state: str, path: str = "") -> int:
        answer = client.request(method, f"/v1/jobs/{states[state]}{path}")
        assert answer.status_code < 400 or answer.json()["type"] == "/problems/wrong-state"
        return answer.status_code

    for state in ("succeeded", "failed", "dead"):
        assert status("POST", state, "/cancel") == 409
    assert status("POST", "cancelled", "/cancel") == 200  # nothing changes
    for state in ("succeeded", "failed", "cancelled"):
        assert status("POST", state, "/retry") == 409
    assert status("DELETE", "queued") == 409
    assert status("POST", "dead", "/retry") == 200
    assert client.get(f"/v1/jobs/{states['dead']}").json()["attempt"] == 0
    for state in ("succeeded", "failed", "cancelled"):
        assert status("DELETE", state) == 204
        assert client.get(f"/v1/jobs/{states[state]}").status_code == 404


def test_events_tell_each_change_until_the_end(api: Api, client: httpx.Client, tenant: UUID) -> None:
    job = accept(client)
    seen: list[tuple[str, dict[str, Any]]] = []
    with client.stream("GET", f"/v1/jobs/{job}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        event = ""
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                seen.append((event, json.loads(value)))
                if len(seen) == 1:
                    execute(
                        api.database.admin,
                        "update jobs set progress_done = 1, progress_total = 2, progress_unit = 'x' where job_id = %s",
                        job,
                    )
                elif len(seen) == 2:
                    finish(api, tenant, job, result={"revision": 1})
    assert [name for name, _ in seen] == ["job", "job", "end"]
    assert seen[0][1]["state"] == "queued"
    assert seen[1][1]["progress"] == {"done": 1, "total": 2, "unit": "x"}
    assert seen[2][1]["result"] == {"revision": 1}


def test_ids_that_are_nobodys(client: httpx.Client) -> None:
    unknown = "01981c2e-7c8a-7b1e-9d52-3f6a1b2c4d5e"
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")):
        answer = client.request(method, f"/v1/jobs/{unknown}{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
