"""/admin/models: the operator's profiles of models and embeddings, and which tenants may name them."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page
from api.openapi import request_body
from api.operators import OperatorDb, json_body
from api.services import Services
from core.models import granting
from core.models.catalogue import Profiles
from core.models.granting import Grant

router = APIRouter()


class NewProfile(BaseModel):
    """A profile, and the tenants that may name it: `"*"` for all."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True,
        json_schema_extra={"examples": [
            {"profile": {"kind": "jev", "model": "jev-1.13.0"}, "grants": "*"},
            {"profile": {"kind": "local", "model": "qwen3-4b", "baseURL": "http://127.0.0.1:8001/v1"},
             "grants": ["01990c2e-6e3a-7d51-9f3c-0c4f5a1b2c3d"]},
        ]},
    )  # fmt: skip

    profile: Annotated[
        dict[str, Any],
        WithJsonSchema(
            {"type": "object", "required": ["kind"], "description": "A model's, or with `url` an embedding's."}
        ),
    ]
    grants: Annotated[
        Any,
        WithJsonSchema({"anyOf": [{"const": "*"}, {"type": "array", "items": {"type": "string", "format": "uuid"}}]}),
    ] = Field(description="Which tenants may name it.")


def profiles(request: Request) -> Profiles:
    return Services.of(request).profiles


Known = Annotated[Profiles, Depends(profiles)]


@router.get("/models", summary="List profiles")
def list_profiles(db: OperatorDb, known: Known, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None) -> dict[str, Any]:
    """Those of the file MUNIMENT_MODELS of this process first, then those of the table. None holds a key."""
    after = decode("models", cursor, [str])
    with db.system() as tx:
        found = granting.list_profiles(tx, after=after[0] if after else None, limit=limit + 1)
    shown = page(found, limit, route="models", key=lambda grant: [grant.name], show=Grant.as_json)
    if after is None:
        shown["items"] = [
            granting.of_file(name, filed).as_json() for name, filed in sorted(known.filed.items())
        ] + shown["items"]
    return shown


@router.put("/models/{name}", summary="Make or change a profile", openapi_extra=request_body(NewProfile))
def put_profile(
    db: OperatorDb, known: Known, name: str, body: Annotated[NewProfile, json_body(NewProfile)]
) -> Response:
    """Replaces the profile and its grants. In force everywhere within `auth_cache_seconds`. `keyEnv` must be listed in
    MUNIMENT_MODEL_KEY_ENVS: the key itself never comes here."""
    with db.system() as tx:
        found, created = granting.put_profile(
            tx, name, body.profile, body.grants, filed=known.filed, key_envs=known.key_envs
        )
    headers = {"Location": f"/v1/admin/models/{name}"} if created else None
    return JSONResponse(found.as_json(), 201 if created else 200, headers)


@router.get("/models/{name}", summary="Show a profile")
def get_profile(db: OperatorDb, known: Known, name: str) -> dict[str, Any]:
    if name in known.filed:
        return granting.of_file(name, known.filed[name]).as_json()
    with db.system() as tx:
        return granting.get_profile(tx, name).as_json()


@router.delete("/models/{name}", status_code=204, summary="Delete a profile", response_class=Response)
def delete_profile(db: OperatorDb, name: str) -> None:
    """Refused while a store names it."""
    with db.system() as tx:
        granting.delete_profile(tx, name)
