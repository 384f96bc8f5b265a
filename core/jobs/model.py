"""What a job is: its kind, a request for one, a claim on one, and how its work may end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from core.clock import rfc3339
from core.errors import MunimentError, from_json
from core.store.database import Tx

TERMINAL = frozenset({"succeeded", "failed", "cancelled", "dead"})


@dataclass(frozen=True)
class Kind:
    """A kind of job. `queue` is the queue's first half; the lane is chosen at accept.

    `run_seconds` bounds one attempt. `from_accept`: the deadline counts from acceptance instead, since nobody waits for the
    answer any longer (reads). `batch` is how many ready jobs one wake-up may take (1: each has its own)."""

    name: str
    queue: str
    run_seconds: int
    from_accept: bool = False
    keep_seconds: int = 86_400
    batch: int = 1


@dataclass(frozen=True)
class JobRequest:
    """A job to accept. `payload` is JSON text; `document_id` is refused at accept when it is visibly taken."""

    tenant_id: UUID
    job_id: UUID
    kind: Kind
    lane: str
    payload: str
    store: str | None = None
    document_id: str | None = None
    deadline_seconds: int | None = None
    max_attempts: int = 5
    waiter: str | None = None
    trace: str | None = None
    idempotency: "Idempotency | None" = None

    @property
    def queue(self) -> str:
        return f"{self.kind.queue}.{self.lane}"


@dataclass(frozen=True)
class Idempotency:
    """An Idempotency-Key in use. `answered`: 202 when that will be the answer whatever the job does."""

    route: str
    key: str
    body_sha256: bytes
    answered: int | None


@dataclass(frozen=True)
class Accepted:
    """`outcome`: accepted | replayed | conflict | unknown-store | document-exists (sql/functions/accept.sql)."""

    outcome: str
    job_id: UUID
    answered: int | None
    send: bool
    created_at: datetime


@dataclass(frozen=True)
class Claim:
    """One claimed job; what `sql/functions/claim.sql` returns. `expired`: its deadline had passed before the claim.

    `seconds_left` until the deadline, by the database's clock: this machine's may be wrong."""

    tenant_id: UUID
    job_id: UUID
    store_id: UUID | None
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    lease_token: UUID
    deadline_at: datetime | None
    created_at: datetime
    waiter: str | None
    trace: str | None
    payload: str
    expired: bool
    seconds_left: float | None

    def body(self) -> dict[str, Any]:
        """The payload as an object; raises ValueError when it is none."""
        body = json.loads(self.payload)
        if not isinstance(body, dict):
            raise ValueError("the payload is not a JSON object")
        return body  # pyright: ignore[reportUnknownVariableType]


@dataclass(frozen=True)
class Done:
    """The work succeeded. `effects` runs inside the transaction that ends the job, after the lease was checked. `locked`: a
    store whose row the effects change; it is locked before the job's row, as writes and erasures lock them."""

    result: dict[str, Any] | None = None
    effects: Callable[[Tx], None] | None = None
    locked: UUID | None = None


@dataclass(frozen=True)
class Waiting:
    """The work has children out: no thread and no lease until the last one ends."""


@dataclass(frozen=True)
class Deferred:
    """The work waits for money or a model: costs no attempt."""

    reason: str
    run_at: datetime


Outcome = Done | Waiting | Deferred


@dataclass(frozen=True)
class Ending:
    """How one job ended, as it is told to whoever waits."""

    job_id: UUID
    state: str
    waiter: str | None = None
    result: str | None = None
    error: dict[str, object] | None = None


@dataclass(frozen=True)
class Job:
    """A job as its row says; `as_json` is the contract's job object."""

    row: dict[str, Any] = field(repr=False)

    @property
    def id(self) -> UUID:
        return self.row["job_id"]

    @property
    def state(self) -> str:
        return self.row["state"]

    @property
    def finished(self) -> bool:
        return self.state in TERMINAL

    @property
    def result(self) -> dict[str, Any] | None:
        text = self.row.get("result")
        return None if text is None else json.loads(text)

    @property
    def error(self) -> MunimentError | None:
        problem = self.row.get("error")
        return None if problem is None else from_json(problem)

    def as_json(self) -> dict[str, Any]:
        """Absent means none (contract.md, Jobs)."""
        row = self.row
        entries: dict[str, Any] = {
            "id": str(row["job_id"]),
            "store": row.get("store"),
            "parent": str(row["parent_id"]) if row["parent_id"] else None,
            "kind": row["kind"],
            "queue": row["queue"],
            "lane": row["queue"].rpartition(".")[2],
            "state": row["state"],
            "reason": row["reason"],
            "attempt": row["attempt"],
            "maxAttempts": row["max_attempts"],
        }
        for name, column in (
            ("createdAt", "created_at"), ("readyAt", "ready_at"), ("runAt", "run_at"), ("startedAt", "started_at"),
            ("finishedAt", "finished_at"),
        ):  # fmt: skip
            entries[name] = rfc3339(row[column]) if row[column] else None
        if row["progress_unit"]:
            entries["progress"] = {
                "done": row["progress_done"] or 0,
                "total": row["progress_total"],
                "unit": row["progress_unit"],
            }
        entries["result"] = self.result
        entries["error"] = row["error"]
        return {name: value for name, value in entries.items() if value is not None}
