"""memory.write, memory.writeConversation and the batch of both (contract.md, Operations)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

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
from core.records.model import (
    BatchRequest,
    ConversationRequest,
    WriteRequest,
    parse_batch,
    parse_conversation,
    parse_write,
)
from core.tenants.keys import Principal
from workers.queues import BULK, INTERACTIVE

router = APIRouter(tags=["memories"])

Writer = Annotated[Principal, require("write")]


@dataclass(frozen=True, slots=True)
class _Body:
    payload: str
    document_id: str | None


def _parser(validate: Callable[[object], Any]) -> Callable[[object], _Body]:
    """A job's payload is the body that was validated, not what validation made of it: no default is frozen into it."""

    def parse(data: object) -> _Body:
        validate(data)
        return _Body(dumps(data), cast("dict[str, str | None]", data).get("id"))

    return parse


_write = _parser(parse_write)
_conversation = _parser(parse_conversation)
_batch = _parser(parse_batch)


@router.post(
    "/stores/{store}/memories",
    summary="Write one text",
    responses=job_answers(201, "WriteResult"),
    openapi_extra=job_body(WriteRequest),
)
async def write(request: Request, store: str, principal: Writer) -> Response:
    """Keeps the text as it is, cut into blocks of at most 600 characters. Answers 202 unless `Prefer: wait=N` is sent."""
    return await _submit(request, store, principal, "write", INTERACTIVE, _write)


@router.post(
    "/stores/{store}/conversations",
    summary="Write a conversation",
    responses=job_answers(201, "WriteResult"),
    openapi_extra=job_body(ConversationRequest),
)
async def write_conversation(request: Request, store: str, principal: Writer) -> Response:
    """Keeps the messages verbatim beside the packed text that is searched."""
    return await _submit(request, store, principal, "conversation", INTERACTIVE, _conversation)


@router.post(
    "/stores/{store}/memories:batch",
    summary="Write many texts and conversations",
    responses=job_answers(201, "BatchResult"),
    openapi_extra=job_body(BatchRequest),
)
async def write_batch(request: Request, store: str, principal: Writer) -> Response:
    """One job for up to 1,000 items; each is all or nothing, and `items` of the result is in their order."""
    return await _submit(request, store, principal, "batch", BULK, _batch)


async def _submit(
    request: Request, store: str, principal: Principal, kind: str, lane: str, parse: Callable[[object], _Body]
) -> Response:
    services = Services.of(request)
    services.refuse_when_read_only()
    body = await read_body(request, parse)
    await admit(services, principal, body.payload)
    job = JobRequest(
        tenant_id=principal.tenant,
        job_id=ids.uuid7(),
        kind=services.kinds[kind],
        lane=lane,
        payload=body.payload,
        store=store,
        document_id=body.document_id,
        max_attempts=services.settings.max_attempts,
    )
    return await answer(request, services, job, created_status=201, default_wait=0)
