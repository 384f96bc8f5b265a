"""Dead letters of a queue, over all tenants: for operators, as muniment_relay. A tenant's own are in service.py."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from core.jobs.model import Job
from core.store.database import Tx

AT_ONCE = 1_000
"""The most jobs that one call retries or purges."""


@dataclass(frozen=True, slots=True)
class DeadJob:
    tenant_id: UUID
    died_at: datetime
    job: Job

    def as_json(self) -> dict[str, Any]:
        """The contract's job object and its tenant."""
        return {"tenant": str(self.tenant_id), **self.job.as_json()}


def list_dead(
    tx: Tx, queue: str, *, tenant_id: UUID | None = None, after: tuple[datetime, UUID] | None = None, limit: int = 100
) -> list[DeadJob]:
    """Oldest death first, from behind `after` (when the last one died, and its id)."""
    after_time, after_job = after or (None, None)
    rows = tx.rows("dead_jobs", queue=queue, tenant=tenant_id, after_time=after_time, after_job=after_job, limit=limit)
    return [DeadJob(row["tenant_id"], row["finished_at"], Job(row)) for row in rows]


def retry_dead(tx: Tx, queue: str, *, tenant_id: UUID | None = None, job_id: UUID | None = None) -> int:
    """Puts dead jobs, at most `AT_ONCE`, back into the queue with all their attempts; returns how many.

    A job whose payload is gone stays dead. The relay sends what was put back.
    """
    rows = tx.rows("revive_dead", queue=queue, tenant=tenant_id, job=job_id, limit=AT_ONCE)
    return sum(row["state"] == "queued" for row in rows)


def purge_dead(tx: Tx, queue: str, *, tenant_id: UUID | None = None, job_id: UUID | None = None) -> int:
    """Deletes dead jobs, at most `AT_ONCE`, with their payloads; returns how many."""
    return len(tx.rows("purge_dead", queue=queue, tenant=tenant_id, job=job_id, limit=AT_ONCE))
