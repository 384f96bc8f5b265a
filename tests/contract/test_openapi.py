"""The OpenAPI document is complete, and the API behaves as it says (schemathesis)."""

from typing import Any
from uuid import UUID

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.contract.server import Api

HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example, HealthCheck.data_too_large]
EXAMPLES = 5
"""Of each operation, in each mode."""


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, entries in document["paths"].items()
        for method, operation in entries.items()
    ]


def test_the_document_is_served_without_a_key(api: Api) -> None:
    with api.client() as client:
        answer = client.get("/openapi.json")
    assert answer.status_code == 200
    document = answer.json()
    assert document["info"]["title"] == "Muniment"
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))


def test_every_operation_says_what_it_does_and_how_it_fails(api: Api) -> None:
    for method, path, operation in operations(api.app.openapi()):
        assert operation["summary"], path
        assert operation["tags"], path
        assert "application/problem+json" in operation["responses"]["default"]["content"], (method, path)
        assert "422" not in operation["responses"], "FastAPI's own shape of errors"


def test_nothing_refers_to_what_is_not_there(api: Api) -> None:
    document = api.app.openapi()

    def refs(value: Any) -> list[str]:
        if isinstance(value, dict):
            here = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return here + [ref for entry in value.values() for ref in refs(entry)]
        return [ref for entry in value for ref in refs(entry)] if isinstance(value, list) else []

    for ref in refs(document):
        assert ref.removeprefix("#/components/schemas/") in document["components"]["schemas"], ref
    assert "x-schemas" not in str(document)


def test_bodies_have_examples_that_are_accepted(api: Api, client: httpx.Client) -> None:
    document = api.app.openapi()
    for method, path, operation in operations(document):
        if "requestBody" not in operation or not path.startswith("/v1/stores/{store}/"):
            continue
        name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for example in document["components"]["schemas"][name].get("examples", []):
            url = path.format(store="journal")
            answer = client.request(method, url, json=example, headers={"Prefer": "wait=0"})
            assert answer.status_code in (201, 202), (path, answer.text)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_api_behaves_as_the_document_says(api: Api, tenant: UUID, mode: GenerationMode) -> None:
    """Good requests are accepted, bad ones refused; every answer has a documented status, type and shape."""
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
    # A stream that ends with its job, and a body that is no JSON.
    schema = schema.exclude(path_regex="events$").exclude(method="PATCH", path="/v1/imports/{id}")
    tried = 0
    for found in schema.get_all_operations():
        operation: schemathesis.APIOperation = found.ok()  # pyright: ignore[reportAttributeAccessIssue]
        admin = operation.path.startswith("/v1/admin")
        behaves(operation, mode, api.operator_key() if admin else api.key(tenant))
        tried += 1
    assert tried > 20


def behaves(operation: schemathesis.APIOperation, mode: GenerationMode, secret: str) -> None:
    names = {"store": "journal"} if "/{store}/" in operation.path else {}

    # No schema could say which cursors and revisions there are, or which configurations can work.
    known = operation.method == "post" and operation.path.startswith("/v1/stores")
    excluded = [] if known else [positive_data_acceptance]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=HEALTH)
    @given(case=operation.as_strategy(generation_mode=mode))
    def each(case: schemathesis.Case) -> None:
        case.path_parameters = {**(case.path_parameters or {}), **names}
        case.headers["Prefer"] = "wait=0"
        headers = {"Authorization": f"Bearer {secret}"}
        response = case.call(headers=headers)
        if response.content != b"Invalid HTTP request received.":  # no HTTP at all: no app ever sees it
            sent = {"headers": headers}
            case.validate_response(response, excluded_checks=excluded, headers=headers, transport_kwargs=sent)

    try:
        each()
    except Unsatisfiable:  # nothing in such a request could be wrong
        assert mode is GenerationMode.NEGATIVE
