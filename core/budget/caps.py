"""Caps and what was spent of them: the operator's of the providers, and lower ones of tenants, stores and jobs.

A cap of a tenant or a store stands beside the provider's and is checked with it, so that it can only lower. Setting a cap
keeps what was spent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.budget.model import units
from core.store.database import Row, Tx

WAKE = 10_000
"""Jobs that a raised cap wakes at once; the others wait for their time."""


@dataclass(frozen=True)
class Cap:
    """One cap and what is used of it. `cap` None: none of its own. `scope`: provider, tenant or store.

    `scope_id`, `store`: the store of that scope; its name is None once it is erased."""

    scope: str
    provider: str
    currency: str
    cap: int | None
    job_cap: int | None
    spent: int
    reserved: int
    scope_id: UUID | None = None
    store: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Amounts are decimal strings in whole units (contract.md, The View)."""
        entry: dict[str, Any] = {"scope": self.scope, "provider": self.provider, "currency": self.currency}
        if self.scope == "store":
            entry |= {"store": self.store, "storeId": str(self.scope_id)}
        if self.cap is not None:
            entry["cap"] = units(self.cap)
        if self.job_cap is not None:
            entry["jobCap"] = units(self.job_cap)
        entry |= {"spent": units(self.spent), "reserved": units(self.reserved)}
        return {name: value for name, value in entry.items() if value is not None}


def accounts(tx: Tx) -> list[Cap]:
    """Every provider's account: the operator's view. Needs the relay's or the owner's role."""
    return [Cap(scope="provider", **row) for row in tx.rows("accounts")]


@dataclass(frozen=True)
class Total:
    """An account as the exporter sees it. `oldest_open_seconds`: age of the oldest open reservation; 0: none."""

    provider: str
    currency: str
    cap: int
    spent: int
    reserved: int
    oldest_open_seconds: float


def totals(tx: Tx) -> list[Total]:
    """Every account, over all tenants. Needs the exporter's, the relay's or the owner's role."""
    return [Total(**row) for row in tx.rows("budget_totals")]


def spenders(
    tx: Tx, tenant_id: UUID, stores: Sequence[str] | None, after: tuple[str, UUID, str] | None, limit: int
) -> list[Cap]:
    """A tenant's own and its stores' caps and spending, by scope, store and provider; `stores`: only these stores'."""
    scope, scope_id, provider = after or (None, None, None)
    rows = tx.rows(
        "spenders",
        tenant=tenant_id,
        stores=None if stores is None else list(stores),
        after_scope=scope,
        after_id=scope_id,
        after_provider=provider,
        limit=limit,
    )
    return [Cap(**row) for row in rows]


def write_caps(tx: Tx, caps: Mapping[str, int]) -> None:
    """The providers' caps, over the stored ones; what was spent is kept."""
    for provider, cap in sorted(caps.items()):
        tx.run("set_provider_cap", provider=provider, cap=cap)


def set_provider_caps(tx: Tx, caps: Mapping[str, int], job_caps: Mapping[str, int | None]) -> None:
    """The operator's caps of providers, and of every single job (None: none). Work that waits for money goes on."""
    write_caps(tx, caps)
    for provider, cap in sorted(job_caps.items()):
        tx.run("set_provider_job_cap", provider=provider, cap=cap)
    _wake(tx)


def set_tenant_caps(
    tx: Tx, tenant_id: UUID, caps: Mapping[str, int | None], job_caps: Mapping[str, int | None]
) -> None:
    """A tenant's caps with providers, and of each of its jobs; None takes one away. Work that waits for money goes on."""
    for provider, cap in sorted(caps.items()):
        tx.run("set_spender_cap", tenant=tenant_id, scope="tenant", id=tenant_id, provider=provider, cap=cap)
    for provider, cap in sorted(job_caps.items()):
        tx.run("set_spender_job_cap", tenant=tenant_id, provider=provider, cap=cap)
    _wake(tx)


def set_store_caps(tx: Tx, tenant_id: UUID, store_id: UUID, caps: Mapping[str, int]) -> None:
    """The caps of a store's configuration: all of them; what it does not name has none. Within the store's change."""
    tx.run("clear_store_caps", tenant=tenant_id, store=store_id, providers=list(caps))
    for provider, cap in sorted(caps.items()):
        tx.run("set_spender_cap", tenant=tenant_id, scope="store", id=store_id, provider=provider, cap=cap)


def settle_dead(tx: Tx, limit: int) -> list[Row]:
    """The relay's duty: reservations of dead processes are settled at their input estimates, at most `limit` of them;
    empty when none was left, and then their slices and shares are given back too."""
    return tx.rows("settle_dead", limit=limit)


def _wake(tx: Tx) -> None:
    tx.rows("wake_deferred", reason="budget", limit=WAKE)
