"""The one way of every POST that makes a job: accept it, wait if the client wants to, answer (contract.md, Waiting)."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.answers import Answer, resolve
from api.problems import ProblemResponse
from api.services import Services
from core.clock import rfc3339
from core.errors import (
    Cancelled,
    DocumentExists,
    IdempotencyConflict,
    InvalidRequest,
    JobFailed,
    MunimentError,
    NotFound,
)
from core.jobs import service as jobs
from core.jobs.model import Accepted, Ending, Idempotency, Job, JobRequest
from core.tenants.keys import Principal

WAIT_LONGEST = 300
"""Seconds; with it every waited-for request ends within five minutes."""
QUICK_SECONDS = 0.05
"""Within this most answers come: until then nobody looks whether the client has gone, which would cost them more."""

_WAIT = re.compile(r'\s*wait\s*=\s*("?)(\d{1,9})\1\s*(?:;.*)?', re.IGNORECASE)
_WAIT_NAMED = re.compile(r"\s*wait\s*(=|;|$)", re.IGNORECASE)
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_log = logging.getLogger(__name__)


def wait_seconds(request: Request, default: int) -> int:
    """N of `Prefer: wait=N` (RFC 7240), 0 to 300; `default` when it is not sent. Other preferences are ignored."""
    sent = request.headers.getlist("prefer")
    if not sent:
        return default
    for preference in ",".join(sent).split(","):
        if _WAIT_NAMED.match(preference):
            found = _WAIT.fullmatch(preference)
            if found is None or int(found[2]) > WAIT_LONGEST:
                raise InvalidRequest.field("Prefer", f"wait must be whole seconds from 0 to {WAIT_LONGEST}")
            return int(found[2])
    return default


async def idempotency(request: Request) -> Idempotency | None:
    """The Idempotency-Key with what it is bound to: the method and path, and the body by its SHA-256."""
    sent = request.headers.getlist("idempotency-key")
    if not sent:
        return None
    if len(sent) > 1:
        raise InvalidRequest.field("Idempotency-Key", "is given more than once; send it once")
    key = sent[0]
    if _KEY.fullmatch(key) is None:
        raise InvalidRequest.field("Idempotency-Key", "must be 1 to 255 printable ASCII characters")
    route = f"{request.method} {request.scope['path']}"
    return Idempotency(route, key, hashlib.sha256(await request.body()).digest(), None)


async def admit(services: Services, principal: Principal, payload: str) -> None:
    """Counts a job in against the tenant's quotas. Raises QuotaExceeded, Unavailable."""
    size = len(payload)  # characters: near enough for a quota, and free
    if services.backlogs.fresh(principal):
        services.backlogs.check(principal, size)
    else:
        await to_thread.run_sync(services.backlogs.check, principal, size)


async def answer(
    request: Request, services: Services, job: JobRequest, *, created_status: int, default_wait: int
) -> Response:
    """Accepts `job` and answers: its result with `created_status`, its problem, or 202 with the job as it was accepted.

    Raises NotFound (store), DocumentExists, IdempotencyConflict, InvalidRequest (headers), Unavailable.
    """
    wait = wait_seconds(request, default_wait)
    key = await idempotency(request)
    if wait == 0:
        job = replace(job, idempotency=None if key is None else replace(key, answered=202))
        accepted = await _accept(services, job)
        if accepted.outcome == "replayed":
            return await _replay(services, job.tenant_id, accepted, created_status)
        return _accepted(_queued(job, accepted))
    job = replace(job, idempotency=key, waiter=services.waiter.id)
    future = services.waiter.register(job.tenant_id, job.job_id)
    try:
        accepted = await _accept(services, job)
        if accepted.outcome == "replayed":
            return await _replay(services, job.tenant_id, accepted, created_status)
        ending, gone = await _wait(request, future, wait)
    finally:
        services.waiter.forget(job.job_id)
    if ending is not None:
        return _finished(ending, created_status)
    if gone:
        if job.kind.queue == "read" and key is None:
            await _cancel(services, job)
    elif key is not None:
        await to_thread.run_sync(_mark_202, services, job.tenant_id, key)
    return _accepted(_queued(job, accepted))


async def _accept(services: Services, job: JobRequest) -> Accepted:
    accepted = await services.handover.result_of(services.submitter.accept(job))
    if accepted.outcome == "unknown-store":
        raise NotFound(f"there is no store {job.store}")
    if accepted.outcome == "document-exists":
        raise DocumentExists
    if accepted.outcome == "conflict":
        raise IdempotencyConflict("the Idempotency-Key was used with another body", job=str(accepted.job_id))
    return accepted


async def _wait(request: Request, answer: Answer, seconds: float) -> tuple[Ending | None, bool]:
    """Until the answer, the end of the time, or the client's going: how the job ended, and whether the client has gone.

    All three resolve `answer`, so that the request sleeps on one future: each other one is a turn of the loop more."""
    loop = asyncio.get_running_loop()
    gone: list[asyncio.Task[None]] = []

    def watch() -> None:
        gone.append(loop.create_task(_disconnected(request)))
        gone[0].add_done_callback(lambda _: resolve(answer, None))

    timers = (loop.call_later(seconds, resolve, answer, None), loop.call_later(QUICK_SECONDS, watch))
    try:
        ending = await answer
    finally:
        for timer in timers:
            timer.cancel()
        for task in gone:
            task.cancel()
    return ending, any(task.done() for task in gone)


async def _disconnected(request: Request) -> None:
    # The body has been read: whatever comes now is the end of the connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel(services: Services, job: JobRequest) -> None:
    try:
        await to_thread.run_sync(_in_tenant, services, job.tenant_id, jobs.cancel, job.job_id)
    except MunimentError as error:
        _log.info("a read whose client has gone goes on: %s", error)


def _in_tenant(services: Services, tenant_id: UUID, act: Callable[..., Job], job_id: UUID) -> Job:
    with services.db.tenant(tenant_id) as tx:
        return act(tx, tenant_id, job_id)


def _mark_202(services: Services, tenant_id: UUID, key: Idempotency) -> None:
    try:
        with services.db.tenant(tenant_id) as tx:
            tx.run("answered_with_202", tenant=tenant_id, route=key.route, key=key.key)
    except MunimentError as error:
        _log.warning("a repetition of a request answered 202 may be answered with its result: %s", error)


# Answers --------------------------------------------------------------------------------------------------------------


def _accepted(body: dict[str, Any]) -> Response:
    return JSONResponse(body, status_code=202, headers={"Location": f"/v1/jobs/{body['id']}"})


def _queued(job: JobRequest, accepted: Accepted) -> dict[str, Any]:
    return _job_object(str(job.job_id), job.store, job.kind.name, job.queue, job.max_attempts, accepted.created_at)


def _as_accepted(job: Job) -> dict[str, Any]:
    row = job.row
    return _job_object(str(job.id), row["store"], row["kind"], row["queue"], row["max_attempts"], row["created_at"])


def _job_object(
    job_id: str, store: str | None, kind: str, queue: str, max_attempts: int, created_at: datetime
) -> dict[str, Any]:
    """The job object at its acceptance, made without asking the database: what every 202 carries."""
    created = rfc3339(created_at)
    body = {
        "id": job_id, "store": store, "kind": kind, "queue": queue, "lane": queue.rpartition(".")[2], "state": "queued",
        "attempt": 0, "maxAttempts": max_attempts, "createdAt": created, "readyAt": created,
    }  # fmt: skip
    if store is None:
        del body["store"]
    return body


def _finished(ending: Ending, created_status: int) -> Response:
    """The result of a job that succeeded, or the problem of one that ended badly; both honour the wish to wait."""
    headers = {"Preference-Applied": "wait"}
    if ending.state == "succeeded":
        body = "null" if ending.result is None else ending.result
        return Response(body, created_status, headers, media_type="application/json")
    problem = _problem(ending) | {"job": str(ending.job_id)}
    if problem["status"] in (429, 503):
        headers["Retry-After"] = "5"
    return ProblemResponse(problem, status_code=int(str(problem["status"])), headers=headers)


def _problem(ending: Ending) -> dict[str, object]:
    if ending.state == "cancelled":
        return Cancelled().as_json()
    if ending.state == "dead":
        last = "" if ending.error is None else str(ending.error.get("detail", ""))
        return JobFailed(f"the attempts are used up: {last}" if last else "the attempts are used up").as_json()
    return JobFailed().as_json() if ending.error is None else ending.error


async def _replay(services: Services, tenant_id: UUID, accepted: Accepted, created_status: int) -> Response:
    """The answer of the first request with this Idempotency-Key, again."""
    job = await to_thread.run_sync(_in_tenant, services, tenant_id, jobs.get, accepted.job_id)
    if accepted.answered == 202:
        return _accepted(_as_accepted(job))
    if not job.finished:
        raise IdempotencyConflict("the first request with this key has not been answered yet", job=str(job.id))
    result = job.row.get("result")
    if job.state == "succeeded" and result is None:
        raise IdempotencyConflict("the first request succeeded; its answer is no longer kept", job=str(job.id))
    return _finished(Ending(job.id, job.state, result=result, error=job.row["error"]), created_status)
