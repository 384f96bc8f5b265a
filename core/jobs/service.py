"""What callers do with jobs, besides accepting and working them. All run in a tenant's transaction."""

from collections.abc import Sequence
from uuid import UUID

from core.errors import NotFound, WrongState
from core.jobs.model import TERMINAL, Job
from core.store.database import Tx

NEWEST = UUID(int=2**128 - 1)
"""Behind every id there is."""


def get(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    """One job with its result while that is kept. Raises NotFound, also for another tenant's id."""
    row = tx.row("get_job", tenant=tenant_id, job=job_id)
    if row is None:
        raise NotFound(f"there is no job {job_id}")
    return Job(row)


def listing(
    tx: Tx,
    tenant_id: UUID,
    *,
    before: UUID | None = None,
    states: Sequence[str] | None = None,
    store: str | None = None,
    parent: UUID | None = None,
    limit: int = 100,
) -> list[Job]:
    """Newest first, those older than `before`; without results.

    A page costs what is on it, whatever else the tenant has, with three exceptions: jobs of one store alone are found by
    passing over those of others; children of one parent are sorted; and queued or running jobs behind 2,000 newer ones are
    looked for in the tenant's whole backlog (its quota: 100,000)."""
    page = {"tenant": tenant_id, "before": before or NEWEST, "store": store, "limit": limit}
    wanted = None if states is None else list(states)
    if parent is not None:
        rows = tx.rows("list_children", **page, parent=parent, states=wanted)
    elif wanted is not None:
        rows = tx.rows("list_jobs_in", **page, states=wanted)
    else:
        rows = tx.rows("list_jobs", **page)
    return [Job(row) for row in rows]


def cancel(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    """Ends a job that has not ended, its children with it; what a running attempt did is discarded by its fence.

    Cancelling a cancelled job again changes nothing. Raises NotFound, WrongState."""
    state = tx.value("cancel_job", tenant=tenant_id, job=job_id)
    if state is None:
        raise NotFound(f"there is no job {job_id}")
    if state not in {"ended", "cancelled"}:
        raise WrongState(f"the job has ended already: {state}")
    return get(tx, tenant_id, job_id)


def retry(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    """Gives a dead job a fresh set of attempts. Raises NotFound, WrongState (only dead jobs, while their body is kept)."""
    state = tx.value("revive_job", tenant=tenant_id, job=job_id)
    if state is None:
        raise NotFound(f"there is no job {job_id}")
    if state != "queued":
        raise WrongState(f"only a dead job can be retried; this one is {state}")
    return get(tx, tenant_id, job_id)


def purge(tx: Tx, tenant_id: UUID, job_id: UUID) -> None:
    """Deletes an ended job with its body and result. Raises NotFound, WrongState."""
    if tx.row("purge_job", tenant=tenant_id, job=job_id) is None:
        job = get(tx, tenant_id, job_id)
        assert job.state not in TERMINAL
        raise WrongState(f"only an ended job can be deleted; this one is {job.state}: cancel it first")
