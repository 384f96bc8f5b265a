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
from core.models.profiles import OFFICIAL, ModelProfile
from core.store.database import Row, Tx

USERS_SHOWN = 5
PAGE = 1_000


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
    _check_not_filed(name, filed)
    try:
        parse_profile(name, definition, key_envs)
    except InvalidRequest as error:
        for problem in error.fields:
            problem.field = f"profile.{problem.field}"
        raise InvalidRequest(f"profile.{error.detail}", fields=error.fields) from None
    tenants = parse_grants(grants)
    wanted = sorted(tenants or ())
    unknown = tx.rows("unknown_tenants", tenants=wanted)
    if unknown:
        raise InvalidRequest.field("grants", f"there is no tenant {unknown[0]['tenant_id']}")
    created: bool = tx.value("put_profile", profile=name, definition=dumps(definition), for_all=tenants is None)
    tx.run("set_grants", profile=name, tenants=wanted)
    return get_profile(tx, name), created


def grant(tx: Tx, name: str, tenant_id: UUID, *, filed: Collection[str]) -> Grant:
    """The tenant may name the profile, beside those that may already. Raises NotFound, WrongState: the file's."""
    _check_not_filed(name, filed)
    if get_profile(tx, name).tenants is not None:
        tx.run("add_grant", profile=name, tenant=tenant_id)
    return get_profile(tx, name)


def revoke(tx: Tx, name: str, tenant_id: UUID, *, filed: Collection[str]) -> Grant:
    """The tenant may name it no longer; calls of its stores that do are refused within `auth_cache_seconds`.

    Raises NotFound, and WrongState for a profile that all tenants may name or that is the file's."""
    _check_not_filed(name, filed)
    if get_profile(tx, name).tenants is None:
        raise WrongState(f"{name} is granted to all tenants: set it again, granted to those that may name it")
    tx.run("remove_grant", profile=name, tenant=tenant_id)
    return get_profile(tx, name)


def grants_of(tx: Tx, name: str, otherwise: object) -> object:
    """As `put_profile` takes them; `otherwise` when there is no such profile in the table."""
    row = tx.row("get_profile", profile=name)
    return otherwise if row is None else Grant.of(row).as_json()["grants"]


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


@dataclass(frozen=True, slots=True)
class Keyed:
    """A granted profile that sends a key: the one in the environment variable `variable`."""

    name: str
    variable: str
    embeds: bool


def keyed(tx: Tx, filed: Mapping[str, Filed]) -> list[Keyed]:
    """Of the file and of the table, by name. What cannot work any more is left out: its calls are refused and say why."""
    found = {row["name"]: Grant.of(row) for row in _all_rows(tx)}
    found |= {name: of_file(name, one) for name, one in filed.items()}
    return [one for name in sorted(found) if (one := _keyed(found[name])) is not None]


def _keyed(entry: Grant) -> Keyed | None:
    if entry.tenants is not None and not entry.tenants:
        return None
    # Whether it is listed is a question to the processes that ask.
    named = {str(entry.definition.get("keyEnv")), *(variable for _, variable in OFFICIAL.values())}
    try:
        profile = parse_profile(entry.name, entry.definition, named)
    except InvalidRequest:
        return None
    return Keyed(entry.name, profile.key_env, not isinstance(profile, ModelProfile)) if profile.key_env else None


def _all_rows(tx: Tx) -> list[Row]:
    rows = page = tx.rows("list_profiles", after=None, limit=PAGE)
    while len(page) == PAGE:
        page = tx.rows("list_profiles", after=page[-1]["name"], limit=PAGE)
        rows = [*rows, *page]
    return rows


def _check_not_filed(name: str, filed: Collection[str]) -> None:
    if name in filed:
        raise WrongState(f"{name} is a profile of the file MUNIMENT_MODELS: change it there")
