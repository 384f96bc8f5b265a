"""/stores: a tenant's stores and their configuration (contract.md, Store configuration)."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Depends, Header
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.auth import require
from api.bodies import read_body
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page
from api.openapi import job_answers, job_headers, problems, request_body
from api.services import Services
from api.waiting import admit, answer
from core import ids
from core.jobs.model import JobRequest
from core.store.database import Tx
from core.tenants import stores
from core.tenants.config import StoreConfig, effective, parse_config, policy_hash
from core.tenants.keys import Principal
from core.tenants.stores import Store
from workers.queues import BULK

router = APIRouter(tags=["stores"])

Reader = Annotated[Principal, require("read")]
Manager = Annotated[Principal, require("manage")]
_STORE: dict[str, Any] = {
    "description": "The store with its effective configuration.",
    "headers": {"ETag": {"description": "Of the configuration.", "schema": {"type": "string"}}},
    "content": {
        "application/json": {
            "schema": {"type": "object", "required": ["name", "configuration", "policyHash", "revision"]},
            "example": {
                "name": "journal",
                "configuration": effective(None),
                "policyHash": policy_hash(effective(None)),
                "revision": 42,
                "storedBytes": 18_230,
                "createdAt": "2026-03-01T09:30:00.000Z",
                "updatedAt": "2026-03-01T09:30:00.000Z",
            },
        }
    },
}
IfMatch = Annotated[str | None, Header(description="The ETag that was read: refused with 412 when it has changed.")]


@dataclass(frozen=True)
class Given:
    """A configuration's JSON, whatever it is."""

    data: object

    def parse(self, services: Services, tx: Tx, tenant_id: UUID, *, inline: bool) -> StoreConfig:
        """Raises InvalidRequest. `inline`: models may be described instead of named."""
        find = services.profiles.finder(tx, tenant_id, inline=inline)
        return parse_config(self.data, allow_model_cache=services.settings.allow_model_cache, find=find)


async def configuration(request: Request) -> Given | None:
    """The body, read after the key was checked; None when there is none: the defaults."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return None
    return await read_body(request, Given)


PUT_STORE: dict[str, Any] = {
    "responses": {200: _STORE, 201: {**_STORE, "description": "The store is new."}, **problems()},
    "openapi_extra": request_body(StoreConfig, required=False),
}


def put(
    services: Services, tenant_id: UUID, store: str, given: Given | None, if_match: str | None, *, inline: bool
) -> Response:
    with services.db.tenant(tenant_id) as tx:
        config = None if given is None else given.parse(services, tx, tenant_id, inline=inline)
        found, created = stores.put_store(tx, tenant_id, store, config, if_match=_tags(if_match))
    headers = {"ETag": found.etag, **({"Location": f"/v1/stores/{found.name}"} if created else {})}
    return JSONResponse(found.as_json(), 201 if created else 200, headers)


@router.put("/stores/{store}", summary="Make or configure a store", **PUT_STORE)
def put_store(
    request: Request,
    store: str,
    principal: Manager,
    given: Annotated[Given | None, Depends(configuration)],
    if_match: IfMatch = None,
) -> Response:
    """Replaces the whole configuration. Without a body: the defaults of a new store. With one, a key left out takes its own
    default; without `index` that is the original retrieval, without `view.order` the order by rank."""
    services = Services.of(request)
    return put(services, principal.tenant, store, given, if_match, inline=services.settings.inline_models)


@router.get("/stores", summary="List stores")
def list_stores(
    request: Request, principal: Reader, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> dict[str, Any]:
    """By name; only those that the key is for."""
    after = decode("stores", cursor, [str])
    with Services.of(request).db.tenant(principal.tenant) as tx:
        found = stores.list_stores(
            tx, principal.tenant, names=principal.store_names(), after=after[0] if after else None, limit=limit + 1
        )
    return page(found, limit, route="stores", key=lambda store: [store.name], show=Store.as_json)


@router.get("/stores/{store}", summary="Show a store", responses={200: _STORE, **problems()})
def get_store(request: Request, store: str, principal: Reader) -> Response:
    """Its effective configuration, with an ETag."""
    with Services.of(request).db.tenant(principal.tenant) as tx:
        found = stores.get_store(tx, principal.tenant, store)
    return JSONResponse(found.as_json(), headers={"ETag": found.etag})


@router.delete(
    "/stores/{store}",
    summary="Erase a store",
    responses=job_answers(200, "Receipt"),
    openapi_extra=job_headers(),
)
async def delete_store(request: Request, store: str, principal: Manager, if_match: IfMatch = None) -> Response:
    """Erases everything in it, for good. Answers 202 unless `Prefer: wait=N` is sent; the result is a receipt."""
    services = Services.of(request)
    services.refuse_when_read_only()
    tags = _tags(if_match)
    if tags is not None:
        (await to_thread.run_sync(_find, services, principal, store)).check(tags)
    payload = '{"store":true}'
    await admit(services, principal, payload)
    job = JobRequest(
        tenant_id=principal.tenant,
        job_id=ids.uuid7(),
        kind=services.kinds["erase"],
        lane=BULK,
        payload=payload,
        store=store,
        max_attempts=services.settings.max_attempts,
    )
    return await answer(request, services, job, created_status=200, default_wait=0)


def _find(services: Services, principal: Principal, store: str) -> Store:
    with services.db.tenant(principal.tenant) as tx:
        return stores.get_store(tx, principal.tenant, store)


def _tags(if_match: str | None) -> list[str] | None:
    """The entity tags of an If-Match header; a weak one matches nothing (RFC 9110 §13.1.1)."""
    return None if if_match is None else [tag.strip() for tag in if_match.split(",")]
