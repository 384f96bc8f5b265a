"""A worker's part done by hand, so that a test decides when and how a job ends."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import redis

from core.jobs.model import Claim, Ending
from core.jsontext import dumps
from tests.contract.server import Api
from tests.rows import execute
from workers.channels import answers, publish

Value = TypeVar("Value")


def until(look: Callable[[], Value | None], seconds: float = 10.0) -> Value:
    """What `look` gives as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return value


def open_job(api: Api, tenant: UUID) -> UUID:
    """The tenant's newest unfinished job, as soon as there is one."""

    def look() -> UUID | None:
        rows = execute(
            api.database.admin,
            "select job_id from jobs where tenant_id = %s and finished_at is null order by seq desc limit 1",
            tenant,
        )
        return rows[0][0] if rows else None

    return until(look)


def job_state(api: Api, job: UUID) -> str:
    return execute(api.database.admin, "select state from jobs where job_id = %s", job)[0][0]


def job_count(api: Api, tenant: UUID) -> int:
    return execute(api.database.admin, "select count(*) from jobs where tenant_id = %s", tenant)[0][0]


def claim(api: Api, tenant: UUID, job: UUID) -> Claim:
    with api.database.app.direct() as tx:
        row = tx.row("claim_job", tenant=tenant, job=job, owner="a test", lease=30)
    assert row is not None
    return Claim(**row)


def finish(
    api: Api,
    tenant: UUID,
    job: UUID,
    state: str = "succeeded",
    result: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
    *,
    tell: bool = True,
) -> None:
    """Ends the job; `tell` False: the message that says so is lost."""
    held = claim(api, tenant, job)
    text = None if result is None else dumps(result)
    with api.database.app.direct() as tx:
        row = tx.row(
            "finish_job",
            tenant=tenant,
            job=job,
            token=held.lease_token,
            state=state,
            result=text,
            error=None if error is None else json.dumps(error),
            reason=None,
        )
    assert row is not None
    assert row["ended"]
    if tell and held.waiter:
        with redis.Redis.from_url(api.settings.secret("redis_url"), socket_timeout=5) as client:
            publish(client, answers([Ending(job, state, held.waiter, text, error)]))
