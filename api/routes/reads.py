"""Questions: memory.read, answered with an evidence View, and searches, answered with ranked records (contract.md)."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.auth import require
from api.bodies import read_body
from api.openapi import job_answers, job_body
from api.services import Services
from api.waiting import admit, answer
from core import ids
from core.jobs.model import JobRequest
from core.jsontext import dumps
from core.reading.model import ReadRequest, parse_read
from core.search.request import SearchRequest, parse_search
from core.tenants.keys import Principal
from workers.queues import INTERACTIVE

router = APIRouter(tags=["reads"])

Reader = Annotated[Principal, require("read")]

DEFAULT_WAIT = 30


@router.post(
    "/stores/{store}/reads",
    summary="Read the memory",
    responses=job_answers(200, "View"),
    openapi_extra=job_body(ReadRequest),
)
async def read(request: Request, store: str, principal: Reader) -> Response:
    """Waits 30 s for the View unless `Prefer: wait=N` says otherwise. Closing the connection before that cancels the read,
    except with an Idempotency-Key."""
    return await _ask(request, store, principal, "read", parse_read)


@router.post(
    "/stores/{store}/searches",
    summary="Search the memory",
    responses=job_answers(200, "SearchResult"),
    openapi_extra=job_body(SearchRequest),
)
async def search(request: Request, store: str, principal: Reader) -> Response:
    """The `k` best records, each with its rank (from 0) and score by every route that found it. With `explain` also each
    route's candidates, and why one is not in the result. Waits 30 s unless `Prefer: wait=N` says otherwise."""
    return await _ask(request, store, principal, "search", parse_search)


async def _ask(
    request: Request, store: str, principal: Principal, name: str, validate: Callable[[object], object]
) -> Response:
    def payload_of(data: object) -> str:
        validate(data)
        return dumps(data)

    services = Services.of(request)
    payload = await read_body(request, payload_of)
    await admit(services, principal, payload)
    kind = services.kinds[name]
    job = JobRequest(
        tenant_id=principal.tenant,
        job_id=ids.uuid7(),
        kind=kind,
        lane=INTERACTIVE,
        payload=payload,
        store=store,
        deadline_seconds=kind.run_seconds,
        max_attempts=services.settings.max_attempts,
    )
    return await answer(request, services, job, created_status=200, default_wait=DEFAULT_WAIT)
