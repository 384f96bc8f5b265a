"""What an actor is given, and the table of actors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.clock import monotonic
from core.errors import DeadlineExceeded, JobFailed, LeaseLost
from core.faults import Faults
from core.jobs.model import Claim, Kind, Outcome
from core.settings import Settings
from core.store.database import Database
from workers.keeper import Hold


@dataclass(frozen=True)
class Work:
    """One claimed job under way."""

    claim: Claim
    hold: Hold
    db: Database
    settings: Settings
    kinds: dict[str, Kind]
    faults: Faults

    def body(self) -> dict[str, Any]:
        """The job's body. Raises JobFailed when it cannot be read: the job ends, its neighbours go on."""
        try:
            return self.claim.body()
        except ValueError as error:
            raise JobFailed(f"the job's body cannot be read: {error}") from error

    def store_id(self) -> UUID:
        if self.claim.store_id is None:
            raise JobFailed(f"a job of kind {self.claim.kind} names no store")
        return self.claim.store_id

    def check(self) -> None:
        """For long work, between steps. Raises LeaseLost, DeadlineExceeded."""
        if self.hold.lost:
            raise LeaseLost("the lease ran out")
        if monotonic() > self.hold.deadline:
            raise DeadlineExceeded("the work took longer than its deadline")

    def progress(self, done: int, total: int | None, unit: str) -> None:
        """Shows how far the job is. Raises LeaseLost when it is no longer ours."""
        claim = self.claim
        with self.db.tenant(claim.tenant_id) as tx:
            touched = tx.run(
                "set_progress",
                tenant=claim.tenant_id,
                job=claim.job_id,
                token=claim.lease_token,
                done=done,
                total=total,
                unit=unit,
            )
        if not touched:
            raise LeaseLost("the job was cancelled or taken over")


Actor = Callable[[Work], Outcome]
