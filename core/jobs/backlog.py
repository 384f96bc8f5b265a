"""What waits, by queue, over all tenants: aggregates by the database's clock (sql/functions/backlog.sql)."""

from dataclasses import dataclass

from core.store.database import Tx


@dataclass(frozen=True)
class QueueBacklog:
    """One queue. Ages are seconds, 0 when there is no such job.

    ready     may run now: sent to a worker or not, not parked, not behind a parked write of its store
    unsent    ready, and owed a wake-up that nobody has sent
    inflight  at work
    parked    waits for a later try or for its time, or behind a write that does
    deferred  waits for money or a model
    waiting   its children are outstanding
    dead      attempts used up; a person may retry it"""

    queue: str
    ready_jobs: int
    ready_oldest_age_seconds: float
    unsent_oldest_age_seconds: float
    inflight_jobs: int
    inflight_oldest_age_seconds: float
    parked_jobs: int
    deferred_jobs: int
    waiting_jobs: int
    dead_jobs: int


@dataclass(frozen=True)
class RoleCount:
    """Processes of one role that reported within 30 s, and the largest difference of a clock from the database's."""

    role: str
    alive: int
    clock_skew_ms: int


def backlog(tx: Tx, inflight_interactive: int, inflight_bulk: int) -> list[QueueBacklog]:
    """Every queue there is, also the empty ones. Needs the exporter's, the relay's or the owner's role.

    The limits (jobs in flight per tenant and queue) decide which ready job is owed a wake-up and which waits its
    turn."""
    tx.run("set_inflight_limits", interactive=str(inflight_interactive), bulk=str(inflight_bulk))
    return [QueueBacklog(**row) for row in tx.rows("backlog")]


@dataclass(frozen=True)
class DeferredReason:
    """Jobs that wait for money or a model, by why; the age is of the one that waits longest."""

    reason: str
    jobs: int
    oldest_age_seconds: float


def deferred_reasons(tx: Tx) -> list[DeferredReason]:
    """Reasons that some job has; needs the role that `backlog` needs."""
    return [DeferredReason(**row) for row in tx.rows("deferred_reasons")]


def role_counts(tx: Tx) -> list[RoleCount]:
    """Who works, by role."""
    return [RoleCount(row["role"], row["alive"], row["clock_skew_ms"] or 0) for row in tx.rows("process_counts")]
