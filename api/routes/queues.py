"""/admin/queues: backlog, processes and dead letters; part of admin's router, and so for operators only."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from api.fleet import fleet
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page, refused
from api.openapi import request_body
from api.operators import OperatorDb, json_body
from api.services import Services
from core.errors import NotFound
from core.jobs.dead import AT_ONCE, DeadJob, list_dead, purge_dead, retry_dead
from workers.queues import QUEUES

router = APIRouter(prefix="/queues")


class DeadLetters(BaseModel):
    """Which dead jobs of the queue: all of them, one tenant's, or one job."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [{}]})

    tenant: UUID | None = None
    job: UUID | None = None


@router.get("", summary="Show the backlog")
def show_queues(request: Request, db: OperatorDb) -> dict[str, Any]:
    """Every queue's backlog by the database clock, and the processes that have reported lately."""
    with db.system() as tx:
        return fleet(tx, Services.of(request).settings)


@router.get("/{queue}/dead", summary="List dead letters")
def list_dead_letters(
    db: OperatorDb, queue: str, tenant: UUID | None = None, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> dict[str, Any]:
    """Dead jobs of all tenants or of one, oldest death first, each with its error."""
    _check(queue)
    with db.system() as tx:
        found = list_dead(tx, queue, tenant_id=tenant, after=_after(queue, cursor), limit=limit + 1)
    return page(
        found, limit, route=queue, key=lambda last: [last.died_at.isoformat(), str(last.job.id)], show=DeadJob.as_json
    )


@router.post("/{queue}/retry", summary="Retry dead letters", openapi_extra=request_body(DeadLetters))
def retry_dead_letters(
    db: OperatorDb, queue: str, body: Annotated[DeadLetters, json_body(DeadLetters)]
) -> dict[str, Any]:
    """Gives them all their attempts again. `more`: the limit of one call was reached, call again."""
    _check(queue)
    with db.system() as tx:
        count = retry_dead(tx, queue, tenant_id=body.tenant, job_id=body.job)
    return {"retried": count, "more": count == AT_ONCE}


@router.post("/{queue}/purge", summary="Purge dead letters", openapi_extra=request_body(DeadLetters))
def purge_dead_letters(
    db: OperatorDb, queue: str, body: Annotated[DeadLetters, json_body(DeadLetters)]
) -> dict[str, Any]:
    """Deletes them for good, oldest first. `more`: the limit of one call was reached, call again."""
    _check(queue)
    with db.system() as tx:
        count = purge_dead(tx, queue, tenant_id=body.tenant, job_id=body.job)
    return {"purged": count, "more": count == AT_ONCE}


def _check(queue: str) -> None:
    if queue not in QUEUES:
        raise NotFound(f"there is no such queue; there are {', '.join(QUEUES)}")


def _after(queue: str, cursor: str | None) -> tuple[datetime, UUID] | None:
    key = decode(queue, cursor, [str, str])
    if key is None:
        return None
    try:
        return datetime.fromisoformat(key[0]), UUID(key[1])
    except ValueError:
        raise refused() from None
