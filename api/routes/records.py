"""Records as they were written, and their erasure (contract.md, Routes and The record)."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.auth import require
from api.bodies import read_body
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page
from api.openapi import answers, job_answers, job_body, job_headers, problems
from api.services import Services
from api.waiting import answer
from core import ids
from core.jobs.model import JobRequest
from core.jsontext import dumps
from core.reading.model import REVISION_LARGEST
from core.records.erasing import ErasureRequest, parse_erasure
from core.records.exporting import export
from core.records.reading import StoredRecord, get_messages, get_record, list_records
from core.search.service import at_revision
from core.tenants.keys import Principal
from core.tenants.stores import get_store, store_id_of
from core.text import check_text
from workers.queues import BULK

router = APIRouter(tags=["records"])

Reader = Annotated[Principal, require("read")]
Manager = Annotated[Principal, require("manage")]
Revision = Annotated[int | None, Query(ge=0, le=REVISION_LARGEST, description="As the store was then; left out, now.")]


@router.get("/stores/{store}/records", summary="List records", responses=answers(200, "Page"))
def list_(
    request: Request,
    store: str,
    principal: Reader,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
    revision: Revision = None,
) -> Response:
    """Documents and blocks in the order they were written, each document before its blocks, without their texts."""
    after = decode("records", cursor, (int, int)) or [-1, -1]
    with Services.of(request).db.tenant(principal.tenant) as tx:
        store_id = store_id_of(tx, principal.tenant, store)
        rows = list_records(
            tx, principal.tenant, store_id, after=(after[0], after[1]), revision=revision, limit=limit + 1
        )
    return JSONResponse(page(rows, limit, route="records", key=_key, show=_shown))


def _key(row: dict[str, Any]) -> list[Any]:
    return [row["position"], row["ordinal"]]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("position", "ordinal")}


@router.get(
    "/stores/{store}/records/{id}",
    summary="One record's exact bytes",
    responses={
        200: {"description": "The canonical JSON that `sha256` is of", "content": {"application/json": {}}},
        304: {"description": "As the client has it"},
        **problems(),
    },
)
def one(request: Request, store: str, id: str, principal: Reader, revision: Revision = None) -> Response:
    """`ETag` is the record's SHA-256, `Muniment-Revision` the revision it was written at. Erased: 410."""
    record = _record(Services.of(request), principal, store, id, revision)
    headers = {"ETag": f'"{record.sha256}"', "Muniment-Revision": str(record.revision)}
    if _matches(request.headers.get("if-none-match"), record.sha256):
        return Response(status_code=304, headers=headers)
    return Response(record.canonical, headers=headers, media_type="application/json")


def _record(services: Services, principal: Principal, store: str, id: str, revision: int | None = None) -> StoredRecord:
    check_text(id, "id")
    with services.db.tenant(principal.tenant) as tx:
        store_id = store_id_of(tx, principal.tenant, store)
        return get_record(tx, principal.tenant, store_id, id, revision)


def _matches(sent: str | None, sha256: str) -> bool:
    if sent is None:
        return False
    tags = [tag.strip().removeprefix("W/").strip('"') for tag in sent.split(",")]
    return "*" in tags or sha256 in tags


@router.get(
    "/stores/{store}/records/{id}/messages", summary="A conversation's messages", responses=answers(200, "Page")
)
def messages(
    request: Request,
    store: str,
    id: str,
    principal: Reader,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Verbatim, in order; `id` is the document's."""
    check_text(id, "id")
    after = decode("messages", cursor, (int,)) or [-1]
    with Services.of(request).db.tenant(principal.tenant) as tx:
        store_id = store_id_of(tx, principal.tenant, store)
        rows = get_messages(tx, principal.tenant, store_id, id, after=after[0], limit=limit + 1)
    return JSONResponse(page(rows, limit, route="messages", key=lambda row: [row["ordinal"]], show=lambda row: row))


@router.get(
    "/stores/{store}/export",
    summary="Export all records",
    responses={
        200: {
            "description": "A line a record: its canonical JSON, which its `sha256` is of; and a line a message",
            "content": {"application/x-ndjson": {}},
        },
        **problems(),
    },
)
def export_(request: Request, store: str, principal: Reader, revision: Revision = None) -> Response:
    """Documents and blocks in the order they were written, each document before its blocks; a conversation's messages (`kind`
    `memory-message`) come behind its document. `Muniment-Revision` is the revision exported. A stream that could not be
    completed breaks off without its last chunk."""
    db = Services.of(request).db
    with db.tenant(principal.tenant) as tx:
        found = get_store(tx, principal.tenant, store)
    wanted = at_revision(revision, found.revision)
    lines = export(db, principal.tenant, found.id, wanted)
    return StreamingResponse(lines, headers={"Muniment-Revision": str(wanted)}, media_type="application/x-ndjson")


@router.delete(
    "/stores/{store}/records/{id}",
    summary="Erase a record",
    responses=job_answers(200, "Receipt"),
    openapi_extra=job_headers(),
)
async def erase(request: Request, store: str, id: str, principal: Manager) -> Response:
    """Erases the document, its blocks and messages; a block's id erases its document. Answers a receipt, or 202."""
    services = Services.of(request)
    services.refuse_when_read_only()
    await to_thread.run_sync(_record, services, principal, store, id)
    return await _submit(request, services, principal, store, {"recordId": id})


@router.post(
    "/stores/{store}/erasures",
    summary="Erase a session or a workspace",
    responses=job_answers(200, "Receipt"),
    openapi_extra=job_body(ErasureRequest),
)
async def erase_scope(request: Request, store: str, principal: Manager) -> Response:
    """Erases every record of the session, the workspace, or the session within the workspace."""
    services = Services.of(request)
    services.refuse_when_read_only()
    body = await read_body(request, parse_erasure)
    return await _submit(request, services, principal, store, body.model_dump(by_alias=True, exclude_none=True))


async def _submit(
    request: Request, services: Services, principal: Principal, store: str, body: dict[str, Any]
) -> Response:
    job = JobRequest(
        tenant_id=principal.tenant,
        job_id=ids.uuid7(),
        kind=services.kinds["erase"],
        lane=BULK,
        payload=dumps(body),
        store=store,
        max_attempts=services.settings.max_attempts,
    )
    return await answer(request, services, job, created_status=200, default_wait=0)
