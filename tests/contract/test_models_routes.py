"""/admin/models through HTTP, and what a store may then name (failure case H19)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from core.ids import uuid7
from tests.conftest import TestDatabase
from tests.contract.server import Api, running

JUDGE: dict[str, Any] = {"kind": "jev", "model": "jev-1.13.0", "keyEnv": "JEV_KEY"}
WRITER: dict[str, Any] = {"kind": "local", "model": "m", "baseURL": "http://127.0.0.1:8001/v1"}
EMBEDDER: dict[str, Any] = {"kind": "ollama", "model": "nomic", "url": "http://127.0.0.1:11434"}


@pytest.fixture
def api(database: TestDatabase, redis_url: str, tmp_path: Path) -> Iterator[Api]:
    path = tmp_path / "models.json"
    path.write_text('{"filed": {"kind": "local", "model": "f", "baseURL": "http://127.0.0.1:1/v1", "grants": "*"}}')
    with running(database, redis_url, models=path, model_key_envs="JEV_KEY, OTHER_KEY") as served:
        yield served


@pytest.fixture
def operator(api: Api) -> Iterator[httpx.Client]:
    with api.client(api.operator_key()) as client:
        client.base_url = f"{api.url}/v1/admin"
        yield client


@pytest.fixture
def client(api: Api, tenant: UUID) -> Iterator[httpx.Client]:
    with api.client(api.key(tenant)) as client:
        yield client


def fields(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 422, answer.text
    return [error["field"] for error in answer.json()["errors"]]


def test_a_profile_is_made_shown_changed_listed_and_deleted(operator: httpx.Client, tenant: UUID) -> None:
    made = operator.put("/models/judge", json={"profile": JUDGE, "grants": [str(tenant)]})
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/admin/models/judge"
    body = made.json()
    assert (body["name"], body["source"], body["profile"], body["grants"]) == ("judge", "table", JUDGE, [str(tenant)])
    assert operator.get("/models/judge").json() == body
    changed = operator.put("/models/judge", json={"profile": {**JUDGE, "maxAttempts": 2}, "grants": "*"})
    assert (changed.status_code, changed.json()["grants"]) == (200, "*")
    assert [item["name"] for item in operator.get("/models").json()["items"]] == ["filed", "judge"]
    assert operator.get("/models/filed").json()["source"] == "file"
    assert operator.delete("/models/judge").status_code == 204
    assert operator.get("/models/judge").status_code == 404


def test_what_is_refused_names_the_field(operator: httpx.Client) -> None:
    for body, field in (
        ({"profile": JUDGE}, "grants"),
        ({"profile": JUDGE, "grants": "all"}, "grants"),
        ({"profile": JUDGE, "grants": ["x"]}, "grants"),
        ({"profile": JUDGE, "grants": [str(uuid7())]}, "grants"),
        ({"profile": {**JUDGE, "keyEnv": "AWS_SECRET_ACCESS_KEY"}, "grants": "*"}, "profile.keyEnv"),
        ({"profile": {**JUDGE, "key": "sk-123"}, "grants": "*"}, "profile.key"),
        ({"profile": {**WRITER, "baseURL": "http://169.254.169.254/v1"}, "grants": "*"}, "profile.baseURL"),
        ({"profile": WRITER, "grants": "*", "more": 1}, "more"),
    ):
        assert fields(operator.put("/models/p", json=body)) == [field]
    assert fields(operator.put("/models/builtin", json={"profile": WRITER, "grants": "*"})) == ["name"]
    assert operator.put("/models/filed", json={"profile": WRITER, "grants": "*"}).status_code == 409
    assert operator.get("/models/p").status_code == 404


def test_a_store_names_what_is_granted_to_its_tenant(
    api: Api, operator: httpx.Client, client: httpx.Client, tenant: UUID
) -> None:
    for name, profile in (("judge", JUDGE), ("writer", WRITER), ("embedder", EMBEDDER)):
        operator.put(f"/models/{name}", json={"profile": profile, "grants": [str(tenant)]})
    config = {"planner": "writer", "judge": "judge", "consolidator": "filed", "embedding": "embedder"}
    made = client.put("/v1/stores/notes", json=config)
    assert made.status_code == 201, made.text
    found = made.json()["configuration"]
    assert {name: found[name] for name in config} == config
    assert client.put("/v1/stores/notes", json=found).json()["policyHash"] == made.json()["policyHash"]
    other = client.put("/v1/stores/notes", json={**config, "judge": "writer"})
    assert other.json()["policyHash"] != made.json()["policyHash"]

    with api.client(api.key(api.tenant())) as stranger:
        refused = stranger.put("/v1/stores/notes", json=config)
        assert fields(refused) == ["planner", "judge", "embedding"]
        assert "granted" in refused.json()["errors"][0]["message"]
        assert stranger.get("/v1/stores/notes").status_code == 404  # nothing was made

    kept = operator.delete("/models/writer")
    assert kept.status_code == 409
    assert "notes" in kept.json()["detail"]


def test_a_profile_of_the_wrong_sort_is_refused(operator: httpx.Client, client: httpx.Client) -> None:
    for name, profile in (("judge", JUDGE), ("embedder", EMBEDDER)):
        operator.put(f"/models/{name}", json={"profile": profile, "grants": "*"})
    assert fields(client.put("/v1/stores/notes", json={"planner": "judge", "consolidator": "judge"})) == [
        "planner", "consolidator",
    ]  # fmt: skip
    assert fields(client.put("/v1/stores/notes", json={"judge": "embedder", "embedding": "judge"})) == [
        "judge", "embedding",
    ]  # fmt: skip
    assert fields(client.put("/v1/stores/notes", json={"judge": 5, "planner": ["x"]})) == ["planner", "judge"]


def test_no_tenant_describes_a_model_but_an_operator_may(
    operator: httpx.Client, client: httpx.Client, tenant: UUID
) -> None:
    inline = {"judge": {**WRITER, "timeoutSeconds": 20}, "embedding": EMBEDDER}
    refused = client.put("/v1/stores/notes", json=inline)
    assert fields(refused) == ["judge", "embedding"]
    assert "set up by the operator" in refused.json()["detail"]
    path = f"/tenants/{tenant}/stores/notes"
    made = operator.put(path, json=inline)
    assert made.status_code == 201, made.text
    assert made.json()["configuration"]["judge"] == inline["judge"]
    slower = operator.put(path, json={**inline, "judge": {**WRITER, "timeoutSeconds": 90}})
    assert slower.json()["policyHash"] == made.json()["policyHash"]  # a time-out changes no answer
    assert fields(operator.put(path, json={"judge": {**JUDGE, "keyEnv": "HOME"}})) == ["judge.keyEnv"]
    assert fields(operator.put(path, json={"planner": {**WRITER, "baseURL": "http://10.0.0.1/v1"}})) == [
        "planner.baseURL"
    ]
    assert operator.put(f"/tenants/{uuid7()}/stores/notes", json={}).status_code == 404


def test_in_the_embedded_stack_a_store_may_describe_a_model(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    with running(database, redis_url, inline_models=True) as api, api.client(api.key(tenant)) as client:
        assert client.put("/v1/stores/notes", json={"judge": WRITER}).status_code == 201
        assert fields(client.put("/v1/stores/notes", json={"judge": JUDGE})) == ["judge.keyEnv"]
