"""The table of profiles behind /admin/models: operators make them and grant them to tenants."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from core.clock import rfc3339
from core.errors import InvalidRequest, NotFound, WrongState
from core.jsontext import dumps
from core.models.catalogue import ALL, Filed, check_profile_name, parse_grants, parse_profile
from core.store.database import Row, Tx

USERS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Grant:
    """A profile and who may name it. `tenants` None: all. Without times it is the file's."""

    name: str
    definition: Mapping[str, Any]
    tenants: Sequence[UUID] | None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @classmethod
    def of(cls, row: Row) -> "Grant":
        tenants = None if row["for_all"] else row["tenants"]
        return cls(row["name"], row["definition"], tenants, row["created_at"], row["updated_at"])

    def as_json(self) -> dict[str, Any]:
        """`{name, source: file|table, profile, grants, createdAt?, updatedAt?}`; a profile holds no key."""
        grants = ALL if self.tenants is None else [str(tenant) for tenant in self.tenants]
        times = {"createdAt": self.created_at, "updatedAt": self.updated_at}
        return {
            "name": self.name,
            "source": "file" if self.created_at is None else "table",
            "profile": dict(self.definition),
            "grants": grants,
            **{name: rfc3339(moment) for name, moment in times.items() if moment is not None},
        }


def of_file(name: str, filed: Filed) -> Grant:
    return Grant(name, filed.definition, None if filed.tenants is None else sorted(filed.tenants))


def put_profile(
    tx: Tx, name: str, definition: object, grants: object, *, filed: Collection[str], key_envs: Collection[str]
) -> tuple[Grant, bool]:
    """Makes or replaces a profile and its grants; says whether it is new. In force within `auth_cache_seconds`.

    Raises InvalidRequest naming the field, WrongState for a name of the operator's file."""
    check_profile_name(name)
    if name in filed:
        raise WrongState(f"{name} is a profile of the file MUNIMENT_MODELS: change it there")
    try:
        parse_profile(name, definition, key_envs)
    except InvalidRequest as error:
        for problem in error.fields:
            problem.field = f"profile.{problem.field}"
        raise
    tenants = parse_grants(grants)
    wanted = sorted(tenants or ())
    unknown = tx.rows("unknown_tenants", tenants=wanted)
    if unknown:
        raise InvalidRequest.field("grants", f"there is no tenant {unknown[0]['tenant_id']}")
    created: bool = tx.value("put_profile", profile=name, definition=dumps(definition), for_all=tenants is None)
    tx.run("set_grants", profile=name, tenants=wanted)
    return get_profile(tx, name), created


def get_profile(tx: Tx, name: str) -> Grant:
    row = tx.row("get_profile", profile=name)
    if row is None:
        raise NotFound("there is no such profile")
    return Grant.of(row)


def list_profiles(tx: Tx, *, after: str | None = None, limit: int = 100) -> list[Grant]:
    """Of the table, by name."""
    return [Grant.of(row) for row in tx.rows("list_profiles", after=after, limit=limit)]


def delete_profile(tx: Tx, name: str) -> None:
    """Raises NotFound, and WrongState while a store names it."""
    get_profile(tx, name)
    users = tx.rows("profile_users", profile=name, limit=USERS_SHOWN)
    if users:
        shown = ", ".join(f"{row['name']} of tenant {row['tenant_id']}" for row in users)
        raise WrongState(f"stores name this profile: {shown}; configure them otherwise first")
    tx.run("delete_profile", profile=name)
