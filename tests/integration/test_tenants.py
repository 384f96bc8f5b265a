"""Tenants and keys, on a real Postgres."""

from datetime import timedelta
from itertools import combinations
from uuid import UUID

import pytest

from core.clock import now
from core.errors import InvalidRequest, NotFound, WrongState
from core.ids import uuid7
from core.tenants import keys, stores, tenants
from core.tenants.keys import SCOPES, Principal, hash_key
from core.tenants.tenants import LimitChanges
from tests.conftest import TestDatabase


def authenticate(database: TestDatabase, secret: str) -> Principal | None:
    return keys.authenticate(database.app, hash_key(secret))


def test_a_new_tenant_has_its_defaults_and_the_store_journal(database: TestDatabase) -> None:
    with database.relay.system() as tx:
        tenant = tenants.create_tenant(tx, "acme")
    assert tenant.as_json() == {
        "id": str(tenant.id),
        "name": "acme",
        "weight": 1,
        "maxQueuedJobs": 100_000,
        "maxQueuedBytes": 2**30,
        "createdAt": tenant.as_json()["createdAt"],
    }
    with database.app.tenant(tenant.id) as tx:
        journal = stores.get_store(tx, tenant.id, "journal")
    assert journal.config["index"] == {"version": 2, "lexical": True, "entities": True, "temporal": True}
    assert journal.revision == 0


def test_a_taken_name_is_refused_and_leaves_nothing(database: TestDatabase) -> None:
    with database.relay.system() as tx:
        first = tenants.create_tenant(tx, "acme")
    with pytest.raises(WrongState, match="acme"), database.relay.system() as tx:
        tenants.create_tenant(tx, "acme")
    with database.relay.system() as tx:
        assert [tenant.id for tenant in tenants.list_tenants(tx)] == [first.id]


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "a\0b", "\ud800"])
def test_names_are_checked(database: TestDatabase, name: str) -> None:
    with pytest.raises(InvalidRequest, match="name"), database.relay.system() as tx:
        tenants.create_tenant(tx, name)


def test_limits_change_one_by_one_and_the_owner_never(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        before = tenants.get_tenant(tx, tenant)
        tenants.set_limits(tx, tenant, LimitChanges(weight=5, max_requests_per_second=10))
        tenants.set_limits(tx, tenant, LimitChanges(max_stored_bytes=7))
        after = tenants.set_limits(tx, tenant, LimitChanges(max_requests_per_second=None))
    assert (after.id, after.name, after.created_at) == (before.id, before.name, before.created_at)
    assert after.limits.weight == 5
    assert after.limits.max_stored_bytes == 7
    assert after.limits.max_requests_per_second is None
    assert after.limits.max_queued_jobs == before.limits.max_queued_jobs


@pytest.mark.parametrize("fields", [{"tenant_id": "x"}, {"name": "other"}, {"id": 1}, {"weight": 0}, {"weight": None}])
def test_no_other_field_can_be_changed(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        LimitChanges.model_validate(fields)


def test_a_keys_effective_scope_is_the_requested_one(database: TestDatabase, tenant: UUID) -> None:
    """H13: over every set of scopes, with and without stores."""
    for size in range(1, len(SCOPES) + 1):
        for scopes in combinations(SCOPES, size):
            for names in (None, ["journal"], ["b", "a"]):
                with database.relay.system() as tx:
                    key, secret = keys.create_key(tx, tenant, "k", scopes, names)
                principal = authenticate(database, secret)
                assert principal is not None
                assert principal.tenant_id == tenant
                assert principal.key_id == key.id
                assert principal.scopes == set(scopes) == set(key.scopes)
                assert principal.stores == (None if names is None else set(names))
                for scope in SCOPES:
                    assert principal.allows(scope, "journal") == (scope in scopes and names != ["b", "a"])
                assert not principal.allows("operator")


def test_an_operators_key_belongs_to_no_tenant(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        _, secret = keys.create_operator_key(tx, "on-call")
    principal = authenticate(database, secret)
    assert principal is not None
    assert principal.is_operator
    assert principal.scopes == {"operator"}
    assert not any(principal.allows(scope, "journal") or principal.allows(scope) for scope in SCOPES)


@pytest.mark.parametrize(
    ("scopes", "names", "field"),
    [
        ([], None, "scopes"),
        (["operator"], None, "scopes"),
        (["read", "admin"], None, "scopes"),
        (["read"], [], "stores"),
        (["read"], ["journal", "No"], r"stores\[1\]"),
        (["read"], ["*"], r"stores\[0\]"),
    ],
)
def test_a_key_that_would_mean_something_else_is_refused(
    database: TestDatabase, tenant: UUID, scopes: list[str], names: list[str] | None, field: str
) -> None:
    with pytest.raises(InvalidRequest, match=field), database.relay.system() as tx:
        keys.create_key(tx, tenant, "k", scopes, names)


def test_a_key_needs_a_tenant_that_exists(database: TestDatabase) -> None:
    with pytest.raises(NotFound), database.relay.system() as tx:
        keys.create_key(tx, uuid7(), "k", ["read"])


def test_only_the_hash_is_stored(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        key, secret = keys.create_key(tx, tenant, "k", ["read"])
        assert keys.list_keys(tx, tenant) == [key]
    assert keys.well_formed(secret)
    assert secret not in repr(key) + str(key.as_json())
    assert authenticate(database, hash_key(secret).hex()) is None


def test_a_revoked_key_is_no_key(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        key, secret = keys.create_key(tx, tenant, "k", ["read"])
        operator, operator_secret = keys.create_operator_key(tx, "on-call")
        keys.revoke(tx, key.id)
        keys.revoke(tx, operator.id)
    with database.relay.system() as tx:
        first = keys.list_keys(tx, tenant)[0].revoked_at
        keys.revoke(tx, key.id)
        assert keys.list_keys(tx, tenant)[0].revoked_at == first
        assert keys.list_keys(tx, None)[0].revoked_at is not None
        with pytest.raises(NotFound):
            keys.revoke(tx, uuid7())
    assert authenticate(database, secret) is None
    assert authenticate(database, operator_secret) is None


def test_an_expired_key_is_no_key(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        _, secret = keys.create_key(tx, tenant, "k", ["read"], expires_at=now() + timedelta(hours=1))
        with pytest.raises(InvalidRequest, match="expiresAt"):
            keys.create_key(tx, tenant, "k", ["read"], expires_at=now() - timedelta(seconds=1))
    assert authenticate(database, secret) is not None
    expire_all_keys(database)
    assert authenticate(database, secret) is None


def test_the_app_role_can_neither_make_nor_change_keys(database: TestDatabase, tenant: UUID) -> None:
    import psycopg

    for act in (
        lambda tx: keys.create_key(tx, tenant, "k", ["manage"]),
        lambda tx: keys.create_operator_key(tx, "k"),
        lambda tx: keys.revoke(tx, uuid7()),
        lambda tx: tenants.set_limits(tx, tenant, LimitChanges(weight=9)),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), database.app.tenant(tenant) as tx:
            act(tx)


def expire_all_keys(database: TestDatabase) -> None:
    import psycopg

    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute("update api_keys set expires_at = now() - interval '1 s'")
