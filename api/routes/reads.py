"""memory.read: a question, answered with an evidence View (contract.md, Operations)."""

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
from core.tenants.keys import Principal
from workers.queues import INTERACTIVE

router = APIRouter(tags=["reads"])

DEFAULT_WAIT = 30


def _parse(data: object) -> str:
    parse_read(data)
    return dumps(data)


@router.post(
    "/stores/{store}/reads",
    summary="Read the memory",
    responses=job_answers(200, "View"),
    openapi_extra=job_body(ReadRequest),
)
async def read(request: Request, store: str, principal: Annotated[Principal, require("read")]) -> Response:
    """Waits 30 s for the View unless `Prefer: wait=N` says otherwise. Closing the connection before that cancels the read,
    except with an Idempotency-Key."""
    services = Services.of(request)
    payload = await read_body(request, _parse)
    await admit(services, principal, payload)
    kind = services.kinds["read"]
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
