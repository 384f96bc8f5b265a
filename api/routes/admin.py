"""/admin/tenants and /admin/keys: for operators only. Works on the database as muniment_relay."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, cast
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.auth import require_operator
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page
from api.openapi import request_body
from api.operators import OperatorDb, json_body
from api.routes import queues
from api.services import Services
from core.errors import InvalidRequest
from core.records.dates import parse as parse_time
from core.store.database import Database
from core.tenants import keys, tenants
from core.tenants.keys import Key
from core.tenants.names import NAME_POINTS, STORE_PATTERN
from core.tenants.tenants import LimitChanges

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[require_operator()])
router.include_router(queues.router)

LARGEST_LIST = 1_000

Name = Annotated[str, Field(min_length=1, max_length=NAME_POINTS)]


def _stores(value: object) -> object:
    if value == "*":
        return value
    if isinstance(value, list):
        names = cast("list[object]", value)  # what a name is, core.tenants.keys knows
        if 1 <= len(names) <= LARGEST_LIST and all(isinstance(name, str) for name in names):
            return names
    why = f'must be "*" for all, or a list of 1 to {LARGEST_LIST:,} names'
    raise PydanticCustomError("invalid", "{why}", {"why": why})


Stores = Annotated[
    Any,
    AfterValidator(_stores),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "*"},
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": STORE_PATTERN},
                    "minItems": 1,
                    "maxItems": LARGEST_LIST,
                },
            ]
        }
    ),
]
Scope = Literal["read", "write", "consolidate", "manage", "operator"]


class NewTenant(LimitChanges):
    """A tenant to make; its name is unique, its limits take their defaults."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "acme", "maxRequestsPerSecond": 50}]})

    name: Name


class NewKey(BaseModel):
    """A key to make: a tenant's, with scopes and stores, or an operator's, with the scope `operator` alone."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True,
        json_schema_extra={"examples": [
            {"tenant": "01990c2e-6e3a-7d51-9f3c-0c4f5a1b2c3d", "name": "agent", "scopes": ["read"], "stores": "*"},
            {"name": "on-call", "scopes": ["operator"], "expiresAt": "2027-01-01T00:00:00Z"},
        ]},
    )  # fmt: skip

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=10)]
    tenant: Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})] | None = None
    stores: Stores = None
    expiresAt: Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})] | None = None


# Tenants --------------------------------------------------------------------------------------------------------------


@router.post("/tenants", status_code=201, summary="Make a tenant", openapi_extra=request_body(NewTenant))
def post_tenant(db: OperatorDb, body: Annotated[NewTenant, json_body(NewTenant)]) -> Response:
    """The tenant has the store `journal` and no key yet."""
    limits = LimitChanges(**body.model_dump(exclude={"name"}, exclude_unset=True))
    with db.system() as tx:
        tenant = tenants.create_tenant(tx, body.name, limits)
    return JSONResponse(tenant.as_json(), 201, {"Location": f"/v1/admin/tenants/{tenant.id}"})


@router.get("/tenants", summary="List tenants")
def list_tenants(db: OperatorDb, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None) -> dict[str, Any]:
    with db.system() as tx:
        found = tenants.list_tenants(tx, after=_uuid_after("tenants", cursor), limit=limit + 1)
    return page(found, limit, route="tenants", key=lambda tenant: [str(tenant.id)], show=tenants.Tenant.as_json)


@router.get("/tenants/{tenant}", summary="Show a tenant")
def get_tenant(db: OperatorDb, tenant: UUID) -> dict[str, Any]:
    with db.system() as tx:
        return tenants.get_tenant(tx, tenant).as_json()


@router.patch("/tenants/{tenant}", summary="Change a tenant's limits", openapi_extra=request_body(LimitChanges))
def patch_tenant(
    db: OperatorDb, tenant: UUID, body: Annotated[LimitChanges, json_body(LimitChanges)]
) -> dict[str, Any]:
    """Quotas and weight; its id and name never change. In force everywhere within `auth_cache_seconds`."""
    with db.system() as tx:
        return tenants.set_limits(tx, tenant, body).as_json()


# Keys -----------------------------------------------------------------------------------------------------------------


@router.post("/keys", status_code=201, summary="Make a key", openapi_extra=request_body(NewKey))
def post_key(db: OperatorDb, body: Annotated[NewKey, json_body(NewKey)]) -> Response:
    """The answer alone holds the `secret`: only its hash is kept."""
    expires_at = None if body.expiresAt is None else _field("expiresAt", body.expiresAt, parse_time)
    with db.system() as tx:
        if keys.OPERATOR in body.scopes:
            if body.tenant is not None or body.stores is not None or len(body.scopes) > 1:
                raise InvalidRequest.field("scopes", "`operator` stands alone, without tenant and stores")
            key, secret = keys.create_operator_key(tx, body.name, expires_at)
        else:
            if body.tenant is None:
                raise InvalidRequest.field("tenant", "is required, unless the scope is `operator`")
            if body.stores is None:
                raise InvalidRequest.field("stores", 'is required: a list of names, or "*" for all')
            tenant = _field("tenant", body.tenant, _uuid)
            names = None if body.stores == "*" else body.stores
            key, secret = keys.create_key(tx, tenant, body.name, body.scopes, names, expires_at)
    return JSONResponse({**key.as_json(), "secret": secret}, 201, {"Cache-Control": "no-store"})


@router.get("/keys", summary="List keys")
def list_keys(
    db: OperatorDb, tenant: UUID | None = None, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> dict[str, Any]:
    """Of a tenant, or without one the operators'; revoked ones too."""
    route = f"keys {tenant}"
    with db.system() as tx:
        if tenant is not None:
            tenants.get_tenant(tx, tenant)
        found = keys.list_keys(tx, tenant, after=_uuid_after(route, cursor), limit=limit + 1)
    return page(found, limit, route=route, key=lambda key: [str(key.id)], show=Key.as_json)


@router.delete("/keys/{key}", status_code=204, summary="Revoke a key", response_class=Response)
async def delete_key(request: Request, db: OperatorDb, key: UUID) -> None:
    """For good: the process that answers this refuses it from now on, every other one within `auth_cache_seconds` (5).
    Revoking it again changes nothing."""
    await to_thread.run_sync(_revoked, db, key)
    Services.of(request).authenticator.forget(key)


def _revoked(db: Database, key: UUID) -> None:
    with db.system() as tx:
        keys.revoke(tx, key)


Value = TypeVar("Value")


def _field(name: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidRequest.field(name, str(error)) from None


def _uuid_after(route: str, cursor: str | None) -> UUID | None:
    key = decode(route, cursor, [str])
    return None if key is None else _field("cursor", key[0], _uuid)


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError("must be a UUID") from None
