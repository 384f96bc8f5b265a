"""Bulk imports: announce, upload in parts, preview, run (contract.md, Routes)."""

from collections.abc import Callable
from typing import Annotated, Any
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Header
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.auth import require
from api.bodies import read_body, read_bytes
from api.import_schemas import IMPORT_SCHEMAS
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page
from api.openapi import answers, job_answers, job_headers, key_header, problems, request_body
from api.routes.jobs import AnyKey
from api.services import Services
from api.waiting import admit, answer, idempotency
from core import ids
from core.archives import service
from core.archives.request import UPLOAD_BYTES, ImportRequest, parse_import
from core.archives.service import Import
from core.errors import Forbidden, MunimentError, NotFound
from core.jobs import service as jobs
from core.jobs.idempotency import first_use
from core.jobs.model import Idempotency, JobRequest
from core.jsontext import dumps
from core.store.database import Tx
from core.tenants.keys import Principal
from workers.queues import BULK

router = APIRouter(tags=["imports"])

Writer = Annotated[Principal, require("write")]
Reader = Annotated[Principal, require("read")]

PART_SECONDS = 300.0
"""For one part of an upload, at most 16 MiB, to arrive."""
OFFSET = {"Upload-Offset": {"description": "Bytes received so far.", "schema": {"type": "integer"}}}

_announcement = request_body(ImportRequest)
_announcement["x-schemas"] |= IMPORT_SCHEMAS


@router.post(
    "/stores/{store}/imports",
    summary="Announce an import",
    responses=answers(201, "Import", "Announced: send the bytes with PATCH"),
    openapi_extra={**_announcement, **key_header()},
)
async def create(request: Request, store: str, principal: Writer) -> Response:
    """Then upload the archive with PATCH to its Location, in parts; a ChatGPT export is a zip or its conversations.json."""
    services = Services.of(request)
    services.refuse_when_read_only()
    body = await read_body(request, parse_import)
    key = await idempotency(request)
    found = await to_thread.run_sync(_created, services, principal, store, body, key)
    headers = {"Location": f"/v1/imports/{found.id}", "Upload-Offset": str(found.row["received"])}
    return JSONResponse(found.as_json(), 201, headers)


def _created(
    services: Services, principal: Principal, store: str, body: ImportRequest, key: Idempotency | None
) -> Import:
    import_id = ids.uuid7()
    limit = principal.limits.max_stored_bytes if principal.limits else None
    with services.db.tenant(principal.tenant) as tx:
        if not first_use(tx, principal.tenant, key, import_id):
            return service.get(tx, principal.tenant, _used(tx, principal, key) or import_id)
        return service.create(tx, principal.tenant, store, body, import_id=import_id, max_stored_bytes=limit)


def _used(tx: Tx, principal: Principal, key: Idempotency | None) -> UUID | None:
    """What the key was used for before: an import's id, or its job's."""
    if key is None:
        return None
    row = tx.row("used_key", tenant=principal.tenant, route=key.route, key=key.key)
    return None if row is None else row["job_id"]


@router.get("/imports", summary="List imports", responses=answers(200, "Page"))
def list_(request: Request, principal: Reader, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None) -> Response:
    """Newest first, without reports; only those into stores that the key is for."""
    key = decode("imports", cursor, (str,))
    with Services.of(request).db.tenant(principal.tenant) as tx:
        rows = service.listing(tx, principal.tenant, names=principal.store_names(), before=_uuid(key), limit=limit + 1)
    return JSONResponse(page(rows, limit, route="imports", key=lambda row: [str(row.id)], show=Import.as_json))


def _uuid(key: list[Any] | None) -> UUID | None:
    try:
        return None if key is None else UUID(key[0])
    except ValueError:
        return None


@router.get("/imports/{id}", summary="One import", responses=answers(200, "Import"))
def one(request: Request, id: UUID, principal: AnyKey) -> Response:
    """Where it stands: bytes received, progress, and what was imported and left out so far."""
    return JSONResponse(_seen(Services.of(request), principal, id).as_json())


@router.head(
    "/imports/{id}",
    summary="How much was uploaded",
    responses={200: {"description": "Go on at Upload-Offset.", "headers": OFFSET}, **problems()},
)
def offset(request: Request, id: UUID, principal: AnyKey) -> Response:
    """`Upload-Offset` bytes of `Upload-Length` were received: after a lost connection the upload goes on there."""
    row = _seen(Services.of(request), principal, id).row
    headers = {"Upload-Offset": str(row["received"]), "Upload-Length": str(row["size"]), "Cache-Control": "no-store"}
    return Response(headers=headers)


def _seen(services: Services, principal: Principal, import_id: UUID) -> Import:
    if not (principal.allows("read") or principal.allows("write")):
        raise Forbidden("the key has neither the scope `read` nor `write`")
    with services.db.tenant(principal.tenant) as tx:
        return _own(tx, principal, import_id)


def _own(tx: Tx, principal: Principal, import_id: UUID) -> Import:
    found = service.get(tx, principal.tenant, import_id)
    if not principal.sees(found.store):
        raise NotFound(f"there is no import {import_id}")
    return found


@router.patch(
    "/imports/{id}",
    summary="Upload a part",
    status_code=204,
    responses={204: {"description": "Kept, all of it.", "headers": OFFSET}, **problems()},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/offset+octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(
    request: Request,
    id: UUID,
    principal: Writer,
    upload_offset: Annotated[
        int, Header(ge=0, le=UPLOAD_BYTES, description="What was received so far: where this goes.")
    ],
) -> Response:
    """The next bytes, at most 16 MiB at once; they are kept before this answers. With the last ones the import is `ready`."""
    services = Services.of(request)
    services.refuse_when_read_only()
    data = await read_bytes(request, PART_SECONDS)
    found = await to_thread.run_sync(_appended, services, principal, id, upload_offset, data)
    return Response(status_code=204, headers={"Upload-Offset": str(found.row["received"])})


def _appended(services: Services, principal: Principal, import_id: UUID, offset: int, data: bytes) -> Import:
    with services.db.tenant(principal.tenant) as tx:
        _own(tx, principal, import_id)
        return service.append(tx, principal.tenant, import_id, offset, data)


@router.post("/imports/{id}/preview", summary="Look into the archive", responses=answers(200, "ImportPreview"))
def preview(request: Request, id: UUID, principal: Writer) -> Response:
    """The first conversations and what would be left out of them; nothing is written. `complete`: that is all of it."""
    services = Services.of(request)
    _seen(services, principal, id)
    return JSONResponse(service.preview(services.db, principal.tenant, id))


@router.post(
    "/imports/{id}/start",
    summary="Start an import",
    responses=job_answers(200, "ImportResult"),
    openapi_extra=job_headers(),
)
async def start(request: Request, id: UUID, principal: Writer) -> Response:
    """Of a complete upload. What an earlier import wrote already is counted and not written twice."""
    return await _run(request, principal, id, "ready")


@router.post(
    "/imports/{id}/resume",
    summary="Go on with an import",
    responses=job_answers(200, "ImportResult"),
    openapi_extra=job_headers(),
)
async def resume(request: Request, id: UUID, principal: Writer) -> Response:
    """Where it was paused, or where it failed."""
    return await _run(request, principal, id, "paused", "failed")


async def _run(request: Request, principal: Principal, import_id: UUID, *states: str) -> Response:
    services = Services.of(request)
    services.refuse_when_read_only()
    key = await idempotency(request)
    payload = dumps({"importId": str(import_id)})
    await admit(services, principal, payload)
    job_id = ids.uuid7()
    before, begun = await to_thread.run_sync(_begun, services, principal, import_id, job_id, key, states)
    if begun and before.draining and before.job_id is not None:
        job = await to_thread.run_sync(_job, services, principal, before.job_id)
        return JSONResponse(job, 202, {"Location": f"/v1/jobs/{before.job_id}"})
    job = JobRequest(
        tenant_id=principal.tenant,
        job_id=job_id,
        kind=services.kinds["import"],
        lane=BULK,
        payload=payload,
        store=before.store,
        max_attempts=services.settings.max_attempts,
    )
    try:
        return await answer(request, services, job, created_status=200, default_wait=0)
    except MunimentError:
        if begun:
            await to_thread.run_sync(_taken_back, services, principal, before, job_id)
        raise


def _begun(
    services: Services,
    principal: Principal,
    import_id: UUID,
    job_id: UUID,
    key: Idempotency | None,
    states: tuple[str, ...],
) -> tuple[Import, bool]:
    """The import as it was, and whether it is now this job's: not when the request is a repetition."""
    with services.db.tenant(principal.tenant) as tx:
        found = _own(tx, principal, import_id)
        if _used(tx, principal, key) is not None:
            return found, False
        return service.begin(tx, principal.tenant, import_id, job_id, *states), True


def _taken_back(services: Services, principal: Principal, before: Import, job_id: UUID) -> None:
    with services.db.tenant(principal.tenant) as tx:
        service.take_back(tx, principal.tenant, before, job_id)


def _job(services: Services, principal: Principal, job_id: UUID) -> dict[str, Any]:
    with services.db.tenant(principal.tenant) as tx:
        return jobs.get(tx, principal.tenant, job_id).as_json()


@router.post(
    "/imports/{id}/pause", summary="Pause an import", responses=answers(200, "Import"), openapi_extra=key_header()
)
async def pause(request: Request, id: UUID, principal: Writer) -> Response:
    """Nothing more is sent; what was sent is still written. Then the import's job ends, and `resume` starts another."""
    return await _act(request, principal, id, service.pause)


@router.post(
    "/imports/{id}/cancel", summary="Cancel an import", responses=answers(200, "Import"), openapi_extra=key_header()
)
async def cancel(request: Request, id: UUID, principal: Writer) -> Response:
    """Ends it for good; what was written stays, and its bytes are deleted after a day."""
    return await _act(request, principal, id, service.cancel)


async def _act(
    request: Request, principal: Principal, import_id: UUID, act: Callable[[Tx, UUID, UUID], Import]
) -> Response:
    services = Services.of(request)
    key = await idempotency(request)
    found = await to_thread.run_sync(_acted, services, principal, import_id, act, key)
    if found.job_id is not None:
        services.waiter.nudge(found.job_id)
    return JSONResponse(found.as_json())


def _acted(
    services: Services,
    principal: Principal,
    import_id: UUID,
    act: Callable[[Tx, UUID, UUID], Import],
    key: Idempotency | None,
) -> Import:
    with services.db.tenant(principal.tenant) as tx:
        found = _own(tx, principal, import_id)
        return act(tx, principal.tenant, import_id) if first_use(tx, principal.tenant, key, import_id) else found
