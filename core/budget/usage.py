"""What a tenant has used: calls, tokens and money, added up (contract.md, Routes: GET /usage)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, get_args
from uuid import UUID

from core.budget.model import units
from core.store.database import Row, Tx

By = Literal["provider", "stage", "store", "day", "job"]
GROUPS: tuple[By, ...] = get_args(By)
NO_STORE = UUID(int=0)


@dataclass(frozen=True)
class Used:
    """One provider's calls of one stage, store, day or job (`part`; "" by provider alone).

    `calls` counts every attempt that has ended, `failed` those without a usable answer, `cached` replayed ones. `currency`
    None: an unpaid provider. `store`: its name; None once it is erased."""

    by: By
    provider: str
    part: str
    calls: int
    failed: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost: int
    currency: str | None
    store: str | None = None

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"provider": self.provider}
        if self.by == "store":
            entry |= {"store": self.store, "storeId": None if self.part == str(NO_STORE) else self.part}
        elif self.by != "provider":
            entry[self.by] = self.part
        entry |= {
            "calls": self.calls,
            "failed": self.failed,
            "cached": self.cached,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cost": units(self.cost),
            "currency": self.currency,
        }
        return {name: value for name, value in entry.items() if value is not None}


def usage(
    tx: Tx,
    tenant_id: UUID,
    by: By,
    *,
    stores: Sequence[str] | None = None,
    first: date | None = None,
    last: date | None = None,
    after: tuple[str, str] | None = None,
    limit: int = 100,
) -> list[Used]:
    """In the order of (part, provider), after that key. `stores`: of these only; `first`, `last`: UTC days, inclusive."""
    part, provider = after or (None, None)
    rows = tx.rows(
        "usage",
        tenant=tenant_id,
        by=by,
        stores=None if stores is None else list(stores),
        first=first,
        last=last,
        after_part=part,
        after_provider=provider,
        limit=limit,
    )
    return [Used(by=by, **row) for row in rows]


def usage_of_jobs(
    tx: Tx,
    tenant_id: UUID,
    *,
    job: UUID | None = None,
    stores: Sequence[str] | None = None,
    before: tuple[UUID, str] | None = None,
    limit: int = 100,
) -> list[Used]:
    """By job, the newest first, and provider, after that key. `job`: of this one only."""
    before_job, provider = before or (None, None)
    rows = tx.rows(
        "usage_of_jobs",
        tenant=tenant_id,
        job=job,
        stores=None if stores is None else list(stores),
        before_job=before_job,
        after_provider=provider,
        limit=limit,
    )
    return [_of_job(row) for row in rows]


def _of_job(row: Row) -> Used:
    return Used(by="job", part=str(row["job_id"]), **{name: value for name, value in row.items() if name != "job_id"})
