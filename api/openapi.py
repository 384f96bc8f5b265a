"""The OpenAPI document: bodies from the models that validate them, every answer and problem with its shape."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from core.errors import PROBLEMS

REF = "#/components/schemas/{model}"
_SCHEMAS = "x-schemas"

_ID = "01981c2e-7c8a-7b1e-9d52-3f6a1b2c4d5e"
_SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_INSTANT = {"type": "string", "format": "date-time"}
_NATURAL = {"type": "integer", "minimum": 0}


def _object(properties: dict[str, Any], required: list[str], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, **more}


SCHEMAS: dict[str, Any] = {
    "Problem": _object(
        {
            "type": {"type": "string", "description": "`/problems/<slug>`, a page that says what to do."},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {
                "type": "array",
                "items": _object({"field": {"type": "string"}, "message": {"type": "string"}}, ["field", "message"]),
            },
            "job": {"type": "string", "format": "uuid"},
        },
        ["type", "title", "status", "detail"],
        title="Problem",
        description="RFC 9457. Slugs: " + ", ".join(f"{error.slug} {error.status}" for error in PROBLEMS) + ".",
    ),
    "Job": _object(
        {
            "id": {"type": "string", "format": "uuid"},
            "store": {"type": "string"},
            "parent": {"type": "string", "format": "uuid"},
            "kind": {"type": "string"},
            "queue": {"type": "string"},
            "lane": {"enum": ["interactive", "bulk"]},
            "state": {
                "enum": ["queued", "running", "waiting", "deferred", "succeeded", "failed", "cancelled", "dead"]
            },
            "reason": {"type": "string"},
            "attempt": _NATURAL,
            "maxAttempts": _NATURAL,
            "createdAt": _INSTANT, "readyAt": _INSTANT, "runAt": _INSTANT, "startedAt": _INSTANT, "finishedAt": _INSTANT,
            "progress": _object(
                {"done": _NATURAL, "total": {"anyOf": [_NATURAL, {"type": "null"}]}, "unit": {"type": "string"}},
                ["done", "unit"],
            ),
            "result": {"type": "object"},
            "error": {"$ref": REF.format(model="Problem")},
        },
        ["id", "kind", "queue", "lane", "state", "attempt", "maxAttempts", "createdAt"],
        title="Job",
        examples=[
            {
                "id": _ID, "store": "journal", "kind": "write", "queue": "write.interactive", "lane": "interactive",
                "state": "queued", "attempt": 0, "maxAttempts": 5, "createdAt": "2026-03-01T09:30:00.000Z",
                "readyAt": "2026-03-01T09:30:00.000Z",
            }
        ],
    ),
    "WriteResult": _object(
        {
            "revision": _NATURAL,
            "document": _object({"id": {"type": "string"}, "sha256": _DIGEST}, ["id", "sha256"]),
            "blocks": {
                "type": "array",
                "items": _object(
                    {"id": {"type": "string"}, "sha256": _DIGEST, "start": _NATURAL, "end": _NATURAL},
                    ["id", "sha256", "start", "end"],
                ),
            },
        },
        ["revision", "document", "blocks"],
        title="WriteResult",
        examples=[
            {
                "revision": 42, "document": {"id": _ID, "sha256": _SHA},
                "blocks": [{"id": f"{_ID}-b0000", "sha256": _SHA, "start": 0, "end": 51}],
            }
        ],
    ),
    "BatchResult": _object(
        {
            "items": {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"$ref": REF.format(model="WriteResult")},
                        _object({"error": {"$ref": REF.format(model="Problem")}}, ["error"]),
                    ]
                },
            }
        },
        ["items"],
        title="BatchResult",
    ),
    "View": _object(
        {
            "revision": _NATURAL,
            "strategy": {"type": "string"},
            "policy": {"type": "object"},
            "policyHash": {"type": "string"},
            "items": {"type": "array", "items": {"type": "object"}},
            "stopReason": {"type": "string"},
            "stats": {"type": "object"},
        },
        ["revision"],
        title="View",
        description="The evidence: records with their hashes and the exact span shown of each. Absent means false or empty.",
    ),
    "SearchResult": _object(
        {
            "revision": _NATURAL,
            "indexVersion": {"enum": [1, 2]},
            "items": {
                "type": "array",
                "items": _object(
                    {
                        "id": {"type": "string"},
                        "sha256": _DIGEST,
                        "document": {"type": "string"},
                        "position": {**_NATURAL, "description": "The block's place in its document, from 0."},
                        "score": {"type": "number"},
                        "routes": {
                            "type": "object",
                            "additionalProperties": _object({"rank": _NATURAL, "score": {"type": "number"}}, []),
                        },
                        "title": {"type": "string"},
                        "text": {"type": "string"},
                        "truncated": {"type": "boolean"},
                        "eventAt": _INSTANT,
                        "session": {"type": "string"},
                    },
                    ["id", "sha256", "document", "position", "score", "routes", "title", "text"],
                ),
            },
            "stats": _object({"indexRoutes": {"type": "object"}, "embeddingMs": _NATURAL, "totalMs": _NATURAL}, []),
            "explain": {"type": "object", "description": "Each route's candidates, and why one is not in the result."},
        },
        ["revision", "items", "stats"],
        title="SearchResult",
        description="Records, the best first. An item that no route names stands beside one that was found.",
        examples=[
            {
                "revision": 42, "indexVersion": 2,
                "items": [
                    {
                        "id": f"{_ID}-b0000", "sha256": _SHA, "document": _ID, "position": 0, "score": 3.1,
                        "routes": {"lexical": {"rank": 0, "score": 4.7}, "vectors": {"rank": 2, "score": 0.61}},
                        "title": "Release", "text": "Ana signs off the release.", "eventAt": "2026-03-01T09:30:00.000Z",
                    }
                ],
                "stats": {"indexRoutes": {"lexical": 1}, "embeddingMs": 3, "totalMs": 9},
            }
        ],
    ),
    "Receipt": _object(
        {
            "erased": _object(
                {"documents": _NATURAL, "records": _NATURAL, "messages": _NATURAL}, ["documents", "records", "messages"]
            ),
            "revision": _NATURAL,
            "erasedAt": _INSTANT,
        },
        ["erased", "revision", "erasedAt"],
        title="Receipt",
        examples=[
            {"erased": {"documents": 1, "records": 3, "messages": 4}, "revision": 43, "erasedAt": "2026-03-01T09:30:00.000Z"}
        ],
    ),
    "Page": _object(
        {"items": {"type": "array", "items": {"type": "object"}}, "nextCursor": {"type": "string"}}, ["items"], title="Page"
    ),
}  # fmt: skip

_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N`, 0 to 300: answer with the result if the job ends within N seconds.",
    "schema": {"type": "string", "pattern": "^wait=([0-9]|[1-9][0-9]|[12][0-9]{2}|300)$"},
    "example": "wait=10",
}
_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Makes a repetition of this request give the same answer for 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}


def request_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """For `openapi_extra` of a route whose body we parse ourselves. `_document` moves the schemas to the components."""
    schema = model.model_json_schema(ref_template=REF)
    schemas = {**schema.pop("$defs", {}), model.__name__: schema}
    content = _json(model.__name__)
    return {"requestBody": {"required": required, "content": content}, _SCHEMAS: schemas}


def job_body(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra` of a POST with a body that makes a job."""
    return {**request_body(model), **job_headers()}


def job_headers() -> dict[str, Any]:
    """For `openapi_extra` of any other route that makes a job."""
    return {"parameters": [_PREFER, _KEY]}


def key_header() -> dict[str, Any]:
    """For `openapi_extra` of a POST that makes no job."""
    return {"parameters": [_KEY]}


def answers(status: int, schema: str, description: str = "Done") -> dict[int | str, dict[str, Any]]:
    """For `responses`: one good answer, and problems."""
    return {status: {"description": description, "content": _json(schema)}, **problems()}


def job_answers(status: int, schema: str) -> dict[int | str, dict[str, Any]]:
    """For `responses` of a route that makes a job: its result, or 202 with the job."""
    location = {"Location": {"description": "Where the job is.", "schema": {"type": "string"}}}
    accepted = {"description": "Accepted: the work goes on", "content": _json("Job"), "headers": location}
    return {status: {"description": "Done", "content": _json(schema)}, 202: accepted, **problems()}


def problems() -> dict[int | str, dict[str, Any]]:
    content = {"application/problem+json": {"schema": {"$ref": REF.format(model="Problem")}}}
    return {"default": {"description": "A problem", "content": content}}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": REF.format(model=schema)}}}


def install(app: FastAPI) -> None:
    """Makes `app.openapi()`, and so /openapi.json, give the whole document; made once."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(SCHEMAS)
    for operations in made["paths"].values():
        for operation in operations.values():
            schemas.update(operation.pop(_SCHEMAS, {}))
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own shape, which no route of ours answers
        schemas.pop(name, None)
    return made
