"""Searching through HTTP: what comes back, what is refused, and for whom."""

from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.contract.server import Api

WAIT = {"Prefer": "wait=20"}
TEXT = "We moved the release to Thursday. 🚀 Ana signs it off."


@pytest.fixture
def written(client: httpx.Client, workers: None) -> str:
    answer = client.post("/v1/stores/journal/memories", json={"text": TEXT, "id": "release-1"}, headers=WAIT)
    assert answer.status_code == 201
    return answer.json()["blocks"][0]["sha256"]


def test_a_search_answers_ranked_records(client: httpx.Client, written: str) -> None:
    answer = client.post("/v1/stores/journal/searches", json={"query": "Who signs off releases?", "k": 3})
    assert answer.status_code == 200
    assert answer.headers["preference-applied"] == "wait"
    body = answer.json()
    (item,) = body["items"]
    assert item["routes"]["lexical"]["rank"] == 0
    assert item == {
        "id": "release-1-b0000", "sha256": written, "document": "release-1", "position": 0, "score": item["score"],
        "routes": item["routes"], "title": TEXT, "text": TEXT, "eventAt": item["eventAt"],
    }  # fmt: skip
    assert body["revision"] == 1
    assert body["indexVersion"] == 2
    assert body["stats"]["indexRoutes"]["lexical"] == 1
    assert "explain" not in body
    record = client.get(f"/v1/stores/journal/records/{item['id']}")
    assert record.headers["etag"] == f'"{item["sha256"]}"'


def test_explain_says_why(client: httpx.Client, written: str) -> None:
    answer = client.post("/v1/stores/journal/searches", json={"query": "release", "explain": True})
    explained = answer.json()["explain"]
    assert explained["terms"] == [{"term": "releas", "records": 1}]
    (candidate,) = explained["routes"]["lexical"]["candidates"]
    assert candidate["why"] == "in the result"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": "x" * 32_769}, "query"),
        ({"query": "x", "k": 0}, "k"),
        ({"query": "x", "k": 101}, "k"),
        ({"query": "x", "routes": []}, "routes"),
        ({"query": "x", "routes": ["relations"]}, "routes[0]"),
        ({"query": "x", "routes": ["lexcal"]}, "routes[0]"),
        ({"query": "x", "revision": -1}, "revision"),
        ({"query": "x", "scope": {"workspace": "w"}}, "scope.workspace"),
        ({"query": "x", "limit": 3}, "limit"),
    ],
)
def test_what_is_refused_names_its_field(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = client.post("/v1/stores/journal/searches", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_revision_that_is_not_there_yet(client: httpx.Client, written: str) -> None:
    answer = client.post("/v1/stores/journal/searches", json={"query": "x", "revision": 2})
    assert answer.status_code == 422
    assert "revision 1" in answer.json()["detail"]
    empty = client.post("/v1/stores/journal/searches", json={"query": "release", "revision": 0})
    assert empty.json()["items"] == []


def test_a_reader_may_cancel_and_see_his_search(api: Api, tenant: UUID) -> None:
    with api.client(api.key(tenant, ("read",))) as client:
        job = client.post("/v1/stores/journal/searches", json={"query": "x"}, headers={"Prefer": "wait=0"})
        assert job.status_code == 202
        assert job.json()["kind"] == "search"
        assert client.get(job.headers["Location"]).status_code == 200
        assert client.post(f"{job.headers['Location']}/cancel").status_code == 200
