"""Stores: named memories of a tenant, each with its configuration (contract.md, Store configuration)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from core import ids
from core.budget.caps import set_store_caps
from core.budget.model import parse_caps
from core.clock import rfc3339
from core.errors import NotFound, PreconditionFailed
from core.jsontext import dumps
from core.search.lexical.writing import request_job
from core.search.vectors import storing
from core.store.database import Row, Tx
from core.tenants.config import StoreConfig, effective, index_version, policy_hash
from core.tenants.names import check_store_name, is_store_name

JOURNAL = "journal"
"""The store that every tenant starts with."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class Store:
    """`config` is the effective configuration; `revision` counts what was written, `version` what was configured."""

    id: UUID
    name: str
    config: Mapping[str, Any]
    policy_hash: str
    version: int
    revision: int
    stored_bytes: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, row: Row) -> "Store":
        return cls(
            row["store_id"], row["name"], row["config"], row["policy_hash"], row["version"], row["revision"],
            row["stored_bytes"], row["created_at"], row["updated_at"],
        )  # fmt: skip

    @property
    def etag(self) -> str:
        """Of the configuration. With the store's id: a store erased and made again is another one."""
        return f'"{self.version}-{self.id.hex[-12:]}"'

    def as_json(self) -> dict[str, Any]:
        """`{name, configuration, policyHash, revision, storedBytes, createdAt, updatedAt}`."""
        return {
            "name": self.name,
            "configuration": self.config,
            "policyHash": self.policy_hash,
            "revision": self.revision,
            "storedBytes": self.stored_bytes,
            "createdAt": rfc3339(self.created_at),
            "updatedAt": rfc3339(self.updated_at),
        }

    def check(self, if_match: Sequence[str]) -> None:
        """Raises PreconditionFailed unless one of the tags (RFC 9110 §13.1.1) is this configuration's."""
        if ANY not in if_match and self.etag not in if_match:
            raise PreconditionFailed(f"the store's configuration is at {self.etag} by now; read it again")


def put_store(
    tx: Tx, tenant_id: UUID, name: str, config: StoreConfig | None, *, if_match: Sequence[str] | None = None
) -> tuple[Store, bool]:
    """Makes the store or replaces its configuration, and says whether it is new. `config` None: the defaults.

    Raises InvalidRequest (the name) and PreconditionFailed (`if_match` given and not met, or no such store).
    """
    check_store_name(name)
    settled = effective(config)
    caps = parse_caps(settled.get("budgets", {}))
    values = {"config": dumps(settled), "policy_hash": policy_hash(settled)}
    found = tx.row("lock_store_by_name", tenant=tenant_id, store_name=name)
    if found is None and if_match is None:
        row = tx.row("insert_store", tenant=tenant_id, store=ids.uuid7(), store_name=name, **values)
        if row is not None:
            set_store_caps(tx, tenant_id, row["store_id"], caps)
            return Store.of(row), True
        found = tx.row("lock_store_by_name", tenant=tenant_id, store_name=name)  # another request was first
    if found is None:
        raise PreconditionFailed("there is no such store")
    store = Store.of(found)
    if if_match is not None:
        store.check(if_match)
    row = tx.row("replace_store", tenant=tenant_id, store=store.id, **values)
    assert row is not None
    set_store_caps(tx, tenant_id, store.id, caps)
    if index_version(store.config) != index_version(settled):
        request_job(tx, tenant_id, store.id)
    if settled.get("embedding") not in (None, store.config.get("embedding")):
        storing.request_job(tx, tenant_id, store.id, "embed.bulk")  # what it holds already has no such vectors
    return Store.of(row), False


def get_store(tx: Tx, tenant_id: UUID, name: str) -> Store:
    row = tx.row("get_store", tenant=tenant_id, store_name=name) if is_store_name(name) else None
    if row is None:
        raise NotFound("there is no such store")
    return Store.of(row)


def list_stores(
    tx: Tx, tenant_id: UUID, *, names: Sequence[str] | None = None, after: str | None = None, limit: int = 100
) -> list[Store]:
    """By name; `names`: only those (`Principal.store_names`)."""
    only = None if names is None else list(names)
    return [Store.of(row) for row in tx.rows("list_stores", tenant=tenant_id, names=only, after=after, limit=limit)]


def store_id_of(tx: Tx, tenant_id: UUID, name: str) -> UUID:
    """Raises NotFound, for another tenant's store too."""
    store_id: UUID | None = tx.value("store_id", tenant=tenant_id, store_name=name) if is_store_name(name) else None
    if store_id is None:
        raise NotFound("there is no such store")
    return store_id
