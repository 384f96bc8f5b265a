"""Jobs of one tenant through the product's own statements: a test plays client, worker and relay itself."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from core.clock import now
from core.ids import uuid7
from core.jobs.model import Claim
from core.jobs.service import NEWEST
from core.store.database import Tx
from tests.conftest import TestDatabase
from tests.rows import execute

EMBED = "embed.interactive"
WRITE = "write.interactive"


class Jobs:
    """Every method is one call of a statement in `sql/queries`, committed."""

    def __init__(self, database: TestDatabase, tenant: UUID) -> None:
        self.database = database
        self.tenant = tenant
        self.owner = "worker-1"

    # -- the client's side ----------------------------------------------------------------------------------------------

    def accept(self, kind: str = "counter", queue: str = EMBED, body: object = None, **more: Any) -> UUID:
        """The id of the accepted job."""
        row = self.accepted(kind, queue, body, **more)
        assert row["outcome"] == "accepted", row
        return row["job_id"]

    def accepted(
        self,
        kind: str = "counter",
        queue: str = EMBED,
        body: object = None,
        *,
        payload: str | None = None,
        job: UUID | None = None,
        store: str | None = None,
        document: str | None = None,
        deadline: int | None = None,
        keep: int = 86_400,
        max_attempts: int = 5,
        key: tuple[str, bytes] | None = None,
        answered: int | None = None,
        inflight: int = 16,
    ) -> dict[str, Any]:
        """What the accepting statement answers. `key`: an Idempotency-Key and the hash of the body."""
        if store is None and queue.startswith("write."):
            store = "journal"
        text = json.dumps({} if body is None else body) if payload is None else payload
        request = {
            "tenant": str(self.tenant), "job": str(job or uuid7()), "store": store, "kind": kind, "queue": queue,
            "document": document, "deadline": deadline, "keep": keep, "attempts": max_attempts,
            "route": "test" if key else None, "key": key and key[0], "body": key and key[1].hex(),
            "answered": answered, "inflight": inflight,
        }  # fmt: skip
        with self.database.app.direct() as tx:
            row = tx.row(
                "accept_jobs",
                requests=json.dumps([request]),
                payloads=[text],
                resend=30.0,
            )
        assert row is not None
        return row

    def cancel(self, job: UUID) -> str | None:
        return self._value("cancel_job", job=job)

    def revive(self, job: UUID) -> str | None:
        return self._value("revive_job", job=job)

    def row(self, job: UUID) -> dict[str, Any]:
        with self.database.app.tenant(self.tenant) as tx:
            row = tx.row("get_job", tenant=self.tenant, job=job)
        assert row is not None
        return row

    def rows(self) -> dict[UUID, dict[str, Any]]:
        """Every job of the tenant, in order of acceptance."""
        with self.database.app.tenant(self.tenant) as tx:
            found = tx.rows("list_jobs", tenant=self.tenant, before=NEWEST, store=None, limit=100_000)
        return {row["job_id"]: row for row in sorted(found, key=lambda row: row["seq"])}

    def states(self) -> dict[UUID, str]:
        return {job: row["state"] for job, row in self.rows().items()}

    # -- the worker's side ----------------------------------------------------------------------------------------------

    def claim(self, job: UUID, lease: float = 30) -> Claim | None:
        row = self._row("claim_job", job=job, owner=self.owner, lease=lease)
        return None if row is None else Claim(**row)

    def claim_more(self, queue: str, kind: str, limit: int, lease: float = 30) -> list[Claim]:
        rows = self._rows("claim_more", queue=queue, kind=kind, owner=self.owner, lease=lease, limit=limit)
        return [Claim(**row) for row in rows]

    def claim_writes(
        self, job: UUID, store: UUID | None = None, limit: int = 500, size: int = 2**24, lease: float = 30
    ) -> list[Claim]:
        rows = self._rows(
            "claim_writes", store=store, job=job, owner=self.owner, lease=lease, limit=limit, bytes=size
        )  # fmt: skip
        return [Claim(**row) for row in rows]

    def renew(self, claims: Sequence[Claim], lease: float = 30) -> set[UUID]:
        with self.database.app.direct() as tx:
            rows = tx.rows(
                "renew_jobs",
                tenants=[claim.tenant_id for claim in claims],
                tokens=[claim.lease_token for claim in claims],
                jobs=[claim.job_id for claim in claims],
                lease=lease,
            )
        return {row["job_id"] for row in rows}

    def finish(self, claim: Claim, state: str = "succeeded", result: str | None = "{}") -> bool:
        row = self._row(
            "finish_job", job=claim.job_id, token=claim.lease_token, state=state, result=result, error=None, reason=None
        )  # fmt: skip
        assert row is not None
        return row["ended"]

    def finish_all(self, claims: Sequence[Claim]) -> set[UUID]:
        rows = self._rows(
            "end_jobs",
            jobs=[claim.job_id for claim in claims],
            tokens=[claim.lease_token for claim in claims],
            states=["succeeded"] * len(claims),
            results=["{}"] * len(claims),
            errors=[None] * len(claims),
        )
        return {row["job_id"] for row in rows}

    def retry(self, claim: Claim, delay: float = 5.0) -> str | None:
        return self._value(
            "retry_job", job=claim.job_id, token=claim.lease_token, error='{"title": "failed"}', delay=delay
        )  # fmt: skip

    def defer(self, claim: Claim, seconds: float = 60.0, reason: str = "money") -> bool:
        run_at = now() + timedelta(seconds=seconds)
        return self._value("defer_job", job=claim.job_id, token=claim.lease_token, reason=reason, run_at=run_at)

    def release(self, claim: Claim) -> bool:
        return self._value("release_job", job=claim.job_id, token=claim.lease_token)

    def add_children(self, claim: Claim, count: int, kind: str = "counter", queue: str = EMBED) -> list[UUID]:
        """The children's ids; none when the claim is no longer valid."""
        with self.database.app.direct() as tx:
            return add_children(tx, claim, count, kind, queue)

    def wait(self, claim: Claim) -> bool:
        return self._value("wait_for_children", job=claim.job_id, token=claim.lease_token)

    # -- the relay's side -----------------------------------------------------------------------------------------------

    def dispatch(self, queue: str = EMBED, inflight: int = 16, limit: int = 1_000) -> list[UUID]:
        name = "dispatch_writes" if queue.startswith("write.") else "dispatch_jobs"
        with self.database.relay.direct() as tx:
            rows = tx.rows(name, queue=queue, inflight=inflight, limit=limit, after=UUID(int=0), resend=30)
        return [row["job_id"] for row in rows]

    def unsend(self, jobs: Sequence[UUID]) -> None:
        """What an API process does when Redis refused its wake-ups."""
        with self.database.app.direct() as tx:
            tx.rows("unsend_jobs", tenants=[self.tenant] * len(jobs), jobs=list(jobs))

    def sweep(self, limit: int = 500, max_crashes: int = 3, keep_days: float = 30) -> dict[UUID, str]:
        """Swept jobs and the reasons."""
        with self.database.relay.direct() as tx:
            rows = tx.rows("sweep_jobs", limit=limit, max_crashes=max_crashes, keep_days=keep_days)
        return {row["job_id"]: row["reason"] for row in rows}

    # -- time -----------------------------------------------------------------------------------------------------------

    def run_out(self, job: UUID | None = None) -> None:
        """The clock that this job (or every unfinished one) waits for runs out: its lease, its delay, its wake-up."""
        execute(
            self.database.admin,
            "update jobs set due_at = now() - interval '1 s' where due_at is not null and finished_at is null "
            "and (%s::uuid is null or job_id = %s)",
            job, job,
        )  # fmt: skip

    def hurry(self) -> None:
        """Every delay and every owed wake-up is due now; leases of what runs are left alone."""
        execute(
            self.database.admin,
            "update jobs set due_at = now() where state in ('queued', 'deferred') and due_at is not null",
        )

    def shift(self, seconds: float) -> None:
        """All that was written so far is this much older."""
        execute(
            self.database.admin,
            "update jobs set created_at = created_at - t, ready_at = ready_at - t, run_at = run_at - t, "
            "sent_at = sent_at - t, started_at = started_at - t, finished_at = finished_at - t, "
            "deadline_at = deadline_at - t, due_at = due_at - t from make_interval(secs => %s) as t",
            seconds,
        )

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _rows(self, name: str, **values: object) -> list[dict[str, Any]]:
        with self.database.app.direct() as tx:
            return tx.rows(name, tenant=self.tenant, **values)

    def _row(self, name: str, **values: object) -> dict[str, Any] | None:
        return next(iter(self._rows(name, **values)), None)

    def _value(self, name: str, **values: object) -> Any:
        row = self._row(name, **values)
        return None if row is None else next(iter(row.values()))


def add_children(tx: Tx, claim: Claim, count: int, kind: str, queue: str) -> list[UUID]:
    jobs = [uuid7() for _ in range(count)]
    added = tx.value(
        "add_children",
        tenant=claim.tenant_id, parent=claim.job_id, token=claim.lease_token, jobs=jobs, kind=kind, queue=queue,
        payloads=["{}"] * count, keep=86_400, max_attempts=5, total=count, unit="parts",
    )  # fmt: skip
    return jobs if added else []


def install_effects(database: TestDatabase) -> None:
    """The table that the test kinds of `tests.fakes.kinds` write to."""
    execute(database.admin, (Path(__file__).parent / "effects.sql").read_text("utf-8"))


def effects(database: TestDatabase) -> dict[UUID, int]:
    """How many times each job's effects were committed."""
    return {row[0]: row[1] for row in execute(database.admin, "select job_id, times from effects")}
