"""A search of a store: ranked records with what each route said of them (contract.md, Routes)."""

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
from core.search.request import SearchRequest, parse_search
from core.tenants.keys import Principal
from workers.queues import INTERACTIVE

router = APIRouter(tags=["reads"])

DEFAULT_WAIT = 30


def _parse(data: object) -> str:
    parse_search(data)
    return dumps(data)


@router.post(
    "/stores/{store}/searches",
    summary="Search the memory",
    responses=job_answers(200, "SearchResult"),
    openapi_extra=job_body(SearchRequest),
)
async def search(request: Request, store: str, principal: Annotated[Principal, require("read")]) -> Response:
    """The `k` best records, each with its rank (from 0) and score by every route that found it. With `explain` also each
    route's candidates, and why one is not in the result. Waits 30 s unless `Prefer: wait=N` says otherwise."""
    services = Services.of(request)
    payload = await read_body(request, _parse)
    await admit(services, principal, payload)
    kind = services.kinds["search"]
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
