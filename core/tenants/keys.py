"""Keys: what they allow, how they are made, found, and revoked (contract.md, Routes).

A key is `mun_` and 43 URL-safe characters (32 random bytes). Only its SHA-256 is stored, so a key is shown once. A fast
hash is right here: the secret is random, not a password.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from core import ids
from core.clock import now, rfc3339
from core.errors import InvalidRequest, NotFound
from core.store.database import Database, Row, Tx
from core.tenants.names import check_name, check_store_name
from core.tenants.tenants import Limits

SCOPES = ("read", "write", "consolidate", "manage")
OPERATOR = "operator"
"""The only scope of an operator's key, and of no tenant's key."""

_SECRET = re.compile(r"mun_[A-Za-z0-9_-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request, by its key alone. `stores` None: every store of the tenant; `tenant_id` None: an operator."""

    key_id: UUID
    tenant_id: UUID | None
    scopes: frozenset[str]
    stores: frozenset[str] | None
    limits: Limits | None

    @property
    def is_operator(self) -> bool:
        return self.tenant_id is None

    @property
    def tenant(self) -> UUID:
        """The tenant; for routes that an operator's key does not pass."""
        assert self.tenant_id is not None
        return self.tenant_id

    def allows(self, scope: str, store: str | None = None) -> bool:
        """Whether the key has `scope`, and on `store` when one is named."""
        return scope in self.scopes and (store is None or self.sees(store))

    def sees(self, store: str) -> bool:
        """Whether the key is for this store at all."""
        return self.tenant_id is not None and (self.stores is None or store in self.stores)

    def store_names(self) -> list[str] | None:
        """What a listing must be narrowed to; None for every store."""
        return None if self.stores is None else sorted(self.stores)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as an operator sees it: everything but the secret."""

    id: UUID
    tenant_id: UUID | None
    name: str
    scopes: tuple[str, ...]
    stores: tuple[str, ...] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, row: Row) -> "Key":
        stores = row["stores"]
        return cls(
            row["key_id"], row["tenant_id"], row["name"], tuple(row["scopes"]),
            None if stores is None else tuple(stores), row["created_at"], row["expires_at"], row["revoked_at"],
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """`{id, tenant?, name, scopes, stores?, createdAt, expiresAt?, revokedAt?}`; `stores` is names or `"*"`."""
        entries: dict[str, Any] = {"id": str(self.id), "name": self.name, "scopes": list(self.scopes)}
        if self.tenant_id is not None:
            entries["tenant"] = str(self.tenant_id)
            entries["stores"] = "*" if self.stores is None else list(self.stores)
        entries["createdAt"] = rfc3339(self.created_at)
        if self.expires_at is not None:
            entries["expiresAt"] = rfc3339(self.expires_at)
        if self.revoked_at is not None:
            entries["revokedAt"] = rfc3339(self.revoked_at)
        return entries


def well_formed(secret: str) -> bool:
    """Whether this could be a key at all; what could not is refused without asking the database."""
    return _SECRET.fullmatch(secret) is not None


def hash_key(secret: str) -> bytes:
    """SHA-256 of the key's text: what is stored and looked up."""
    return hashlib.sha256(secret.encode()).digest()


def authenticate(db: Database, key_hash: bytes) -> Principal | None:
    """Whose key this is; None when there is no such key, or it is revoked or expired. One round trip."""
    with db.direct() as tx:
        row = tx.row("authenticate", key_hash=key_hash)
    if row is None:
        return None
    stores = row["stores"]
    return Principal(
        key_id=row["key_id"],
        tenant_id=row["tenant_id"],
        scopes=frozenset(row["scopes"]),
        stores=None if stores is None else frozenset(stores),
        limits=None if row["tenant_id"] is None else Limits.of(row),
    )


def create_key(
    tx: Tx,
    tenant_id: UUID,
    name: str,
    scopes: Sequence[str],
    stores: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> tuple[Key, str]:
    """A new key of a tenant and its secret, which nobody can read again. `stores` None: every store.

    Raises NotFound (no such tenant) and InvalidRequest naming the field. A store may be named before it exists.
    """
    check_name(name)
    _check_expiry(expires_at)
    wrong = sorted(set(scopes) - set(SCOPES))
    if wrong or not scopes:
        raise InvalidRequest.field("scopes", f"must be one or more of {', '.join(SCOPES)}")
    if stores is not None and not stores:
        raise InvalidRequest.field("stores", 'names no store; name one, or send "*" for all')
    for index, store in enumerate(stores or ()):
        check_store_name(store, f"stores[{index}]")
    if tx.row("get_tenant", tenant=tenant_id) is None:
        raise NotFound("there is no such tenant")
    secret = f"mun_{ids.token()}"
    row = tx.row(
        "insert_key",
        tenant=tenant_id,
        key=ids.uuid7(),
        key_hash=hash_key(secret),
        key_name=name,
        scopes=[scope for scope in SCOPES if scope in scopes],
        stores=None if stores is None else sorted(set(stores)),
        expires_at=expires_at,
    )
    assert row is not None
    return Key.of(row), secret


def create_operator_key(tx: Tx, name: str, expires_at: datetime | None = None) -> tuple[Key, str]:
    """A new operator's key and its secret: it reaches /admin and no tenant's data."""
    check_name(name)
    _check_expiry(expires_at)
    secret = f"mun_{ids.token()}"
    row = tx.row(
        "insert_operator_key", key=ids.uuid7(), key_hash=hash_key(secret), key_name=name, expires_at=expires_at
    )
    assert row is not None
    return Key.of(row), secret


def list_keys(tx: Tx, tenant_id: UUID | None, *, after: UUID | None = None, limit: int = 100) -> list[Key]:
    """Keys of a tenant, or with None the operators', oldest first, revoked ones too."""
    if tenant_id is None:
        return [Key.of(row) for row in tx.rows("list_operator_keys", after=after, limit=limit)]
    return [Key.of(row) for row in tx.rows("list_keys", tenant=tenant_id, after=after, limit=limit)]


def revoke(tx: Tx, key_id: UUID) -> None:
    """Ends a key for good; every process has forgotten it within `auth_cache_seconds`. Raises NotFound."""
    if tx.row("revoke_key", key=key_id) is None:
        raise NotFound("there is no such key")


def _check_expiry(expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= now():
        raise InvalidRequest.field("expiresAt", "is in the past")
