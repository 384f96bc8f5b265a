"""Jobs: their state, progress and results, and what a person may do with them (contract.md, Jobs)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Annotated, Any, Literal
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.auth import Require, require
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page, refused
from api.openapi import answers, key_header, problems
from api.services import Services
from api.waiting import idempotency
from core.clock import monotonic
from core.errors import Forbidden, NotFound
from core.jobs import service
from core.jobs.idempotency import first_use
from core.jobs.model import Idempotency, Job
from core.jsontext import dumps
from core.store.database import Tx
from core.tenants.keys import Principal
from core.text import check_text

router = APIRouter(tags=["jobs"])

SCOPE_OF = {
    "write": "write",
    "conversation": "write",
    "batch": "write",
    "import": "write",
    "read": "read",
    "search": "read",
    "erase": "manage",
}
"""Who may make a job of a kind may also see it, cancel it, retry it and delete it; `read` sees all."""
EVENTS_POLL_SECONDS = 1.0
EVENTS_LONGEST_SECONDS = 300.0
EVENTS_HEARTBEAT_SECONDS = 15.0

State = Literal["queued", "running", "waiting", "deferred", "succeeded", "failed", "cancelled", "dead"]


class _AnyScope(Require):
    """Any key of a tenant; what it may do is decided by the job's kind and store."""

    def __init__(self) -> None:
        super().__init__("any")

    def check(self, principal: Principal, store: str | None) -> None:
        if principal.is_operator:
            raise Forbidden("an operator's key belongs to no tenant: use one of the tenant's keys")


AnyKey = Annotated[Principal, Depends(_AnyScope())]


def _check(principal: Principal, job: Job, *scopes: str) -> Job:
    """Raises NotFound for a job of a store that the key is not for, Forbidden when it has none of the scopes."""
    store = job.row["store"]
    if principal.stores is not None and (store is None or not principal.sees(store)):
        raise NotFound(f"there is no job {job.id}")
    if not any(principal.allows(scope) for scope in scopes):
        raise Forbidden(f"the key has not the scope `{scopes[-1]}`, which a job of the kind {job.row['kind']} needs")
    return job


def _visible(services: Services, principal: Principal, job_id: UUID) -> Job:
    with services.db.tenant(principal.tenant) as tx:
        job = service.get(tx, principal.tenant, job_id)
    return _check(principal, job, "read", SCOPE_OF.get(job.row["kind"], "manage"))


@router.get("/jobs", summary="List jobs", responses=answers(200, "Page"))
def list_(
    request: Request,
    principal: Annotated[Principal, require("read")],
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
    state: Annotated[list[State] | None, Query(max_length=8, description="One or more states.")] = None,
    store: Annotated[str | None, Query(max_length=63)] = None,
    parent: Annotated[UUID | None, Query(description="The children of this job.")] = None,
) -> Response:
    """Newest first, without results. A key for some stores lists their jobs alone."""
    before = decode("jobs", cursor, (str,))
    if store is not None:
        check_text(store, "store")
    names: list[str | None] = [store]
    if principal.stores is not None:
        names = [name for name in principal.store_names() or [] if store in (None, name)]
    rows: list[Job] = []
    with Services.of(request).db.tenant(principal.tenant) as tx:
        for name in names:
            rows += service.listing(
                tx, principal.tenant, before=_uuid(before), states=state, store=name, parent=parent, limit=limit + 1
            )
    rows.sort(key=lambda job: job.id, reverse=True)
    return JSONResponse(page(rows, limit, route="jobs", key=lambda job: [str(job.id)], show=Job.as_json))


def _uuid(key: list[Any] | None) -> UUID | None:
    try:
        return None if key is None else UUID(key[0])
    except ValueError:
        raise refused() from None


@router.get("/jobs/{job}", summary="One job", responses=answers(200, "Job"))
def one(request: Request, job: UUID, principal: AnyKey) -> Response:
    """With its result while that is kept, or its `error`: a job that ended badly is still a 200 here."""
    return JSONResponse(_visible(Services.of(request), principal, job).as_json())


@router.get(
    "/jobs/{job}/events",
    summary="A job's progress as it happens",
    responses={200: {"description": "Server-sent events", "content": {"text/event-stream": {}}}, **problems()},
)
async def events(request: Request, job: UUID, principal: AnyKey) -> Response:
    """An event `job` with the job object at once and at each change, `end` at its end. The stream closes after five
    minutes in any case; clients of server-sent events then connect again by themselves."""
    services = Services.of(request)
    first = await to_thread.run_sync(_visible, services, principal, job)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(services, principal, first), headers=headers, media_type="text/event-stream")


async def _events(services: Services, principal: Principal, job: Job) -> AsyncIterator[str]:
    stops = monotonic() + EVENTS_LONGEST_SECONDS
    shown, spoke = "", monotonic()
    while True:
        text = dumps(job.as_json())
        if text != shown:
            shown, spoke = text, monotonic()
            yield f"event: {'end' if job.finished else 'job'}\ndata: {text}\n\n"
        elif monotonic() - spoke > EVENTS_HEARTBEAT_SECONDS:
            spoke = monotonic()
            yield ": still here\n\n"
        if job.finished or monotonic() > stops or services.waiter.stopping.is_set():
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(services.waiter.stopping.wait(), EVENTS_POLL_SECONDS)
        try:
            job = await to_thread.run_sync(_visible, services, principal, job.id)
        except NotFound:  # deleted meanwhile
            return


@router.post("/jobs/{job}/cancel", summary="Cancel a job", responses=answers(200, "Job"), openapi_extra=key_header())
async def cancel(request: Request, job: UUID, principal: AnyKey) -> Response:
    """Ends a job that has not ended, and its children; nothing of what a running attempt did is kept."""
    return await _act(request, job, principal, service.cancel)


@router.post("/jobs/{job}/retry", summary="Retry a dead job", responses=answers(200, "Job"), openapi_extra=key_header())
async def retry(request: Request, job: UUID, principal: AnyKey) -> Response:
    """Gives a job that used up its attempts a fresh set of them."""
    return await _act(request, job, principal, service.retry)


async def _act(request: Request, job_id: UUID, principal: Principal, act: Callable[[Tx, UUID, UUID], Job]) -> Response:
    services = Services.of(request)
    key = await idempotency(request)
    job = await to_thread.run_sync(_acted, services, principal, job_id, act, key)
    services.waiter.nudge(job_id)
    return JSONResponse(job.as_json())


def _acted(
    services: Services,
    principal: Principal,
    job_id: UUID,
    act: Callable[[Tx, UUID, UUID], Job],
    key: Idempotency | None,
) -> Job:
    with services.db.tenant(principal.tenant) as tx:
        job = _own(tx, principal, job_id)
        if act is service.retry and SCOPE_OF.get(job.row["kind"]) != "read":
            services.refuse_when_read_only()
        return act(tx, principal.tenant, job_id) if first_use(tx, principal.tenant, key, job_id) else job


@router.delete(
    "/jobs/{job}",
    summary="Delete an ended job",
    status_code=204,
    responses={204: {"description": "Gone"}, **problems()},
)
def delete(request: Request, job: UUID, principal: AnyKey) -> Response:
    """Deletes the job with its body and result; what it wrote stays."""
    with Services.of(request).db.tenant(principal.tenant) as tx:
        _own(tx, principal, job)
        service.purge(tx, principal.tenant, job)
    return Response(status_code=204)


def _own(tx: Tx, principal: Principal, job_id: UUID) -> Job:
    job = service.get(tx, principal.tenant, job_id)
    return _check(principal, job, SCOPE_OF.get(job.row["kind"], "manage"))
