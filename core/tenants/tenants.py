"""Tenants and what each may use. Only an operator makes or changes them."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from core import ids
from core.clock import rfc3339
from core.errors import NotFound, WrongState
from core.jsontext import SAFE_INTEGER
from core.store.database import Row, Tx
from core.tenants.names import check_name
from core.tenants.stores import JOURNAL, put_store


@dataclass(frozen=True, slots=True)
class Limits:
    """A tenant's quotas (contract.md, Routes) and its weight in the relay's round-robin. None: no limit."""

    weight: int
    max_queued_jobs: int
    max_queued_bytes: int
    max_stored_bytes: int | None
    max_requests_per_second: int | None

    @classmethod
    def of(cls, row: Row) -> "Limits":
        return cls(
            row["weight"], row["max_queued_jobs"], row["max_queued_bytes"], row["max_stored_bytes"],
            row["max_requests_per_second"],
        )  # fmt: skip


Jobs = Annotated[int, Field(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=0, le=SAFE_INTEGER)]


class LimitChanges(BaseModel):
    """Those fields of `Limits` that change; what is left out stays; null takes a limit away where there may be none."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True,
        json_schema_extra={"examples": [{"weight": 2, "maxQueuedJobs": 20_000, "maxRequestsPerSecond": 50}]},
    )  # fmt: skip

    weight: Annotated[int, Field(ge=1, le=100)] = 1
    max_queued_jobs: Jobs = 100_000
    max_queued_bytes: Bytes = 2**30
    max_stored_bytes: Bytes | None = None
    max_requests_per_second: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    id: UUID
    name: str
    limits: Limits
    created_at: datetime

    @classmethod
    def of(cls, row: Row) -> "Tenant":
        return cls(row["tenant_id"], row["name"], Limits.of(row), row["created_at"])

    def as_json(self) -> dict[str, Any]:
        """`{id, name, weight, maxQueuedJobs, maxQueuedBytes, maxStoredBytes?, maxRequestsPerSecond?, createdAt}`."""
        limits = {to_camel(name): value for name, value in asdict(self.limits).items() if value is not None}
        return {"id": str(self.id), "name": self.name, **limits, "createdAt": rfc3339(self.created_at)}


def create_tenant(tx: Tx, name: str, limits: LimitChanges | None = None) -> Tenant:
    """A new tenant with the store `journal`. Raises WrongState when the name is taken."""
    check_name(name)
    row = tx.row("insert_tenant", tenant=ids.uuid7(), tenant_name=name)
    if row is None:
        raise WrongState(f"a tenant named {name!r} exists already")
    tenant = Tenant.of(row)
    put_store(tx, tenant.id, JOURNAL, None)
    return set_limits(tx, tenant.id, limits) if limits else tenant


def get_tenant(tx: Tx, tenant_id: UUID) -> Tenant:
    row = tx.row("get_tenant", tenant=tenant_id)
    if row is None:
        raise NotFound("there is no such tenant")
    return Tenant.of(row)


def list_tenants(tx: Tx, *, after: UUID | None = None, limit: int = 100) -> list[Tenant]:
    """Oldest first: ids are time-ordered."""
    return [Tenant.of(row) for row in tx.rows("list_tenants", after=after, limit=limit)]


def set_limits(tx: Tx, tenant_id: UUID, changes: LimitChanges) -> Tenant:
    """Every process goes by the new limits within `auth_cache_seconds`. Raises NotFound."""
    row = tx.row("lock_tenant", tenant=tenant_id)
    if row is None:
        raise NotFound("there is no such tenant")
    limits = {**asdict(Limits.of(row)), **changes.model_dump(exclude_unset=True)}
    row = tx.row("set_tenant_limits", tenant=tenant_id, **limits)
    assert row is not None
    return Tenant.of(row)
