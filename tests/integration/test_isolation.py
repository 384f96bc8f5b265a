"""Row-level security on every tenant table, as the real role (failure-cases.md N11; architecture.md §3, Isolation)."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from core.ids import uuid7
from core.settings import SettingsError
from core.store.database import Database
from core.store.roles import check_app_role
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.rows import execute

FLEET = {
    "tenants", "operator_keys", "leases", "processes", "function_versions",
    "process_leases", "budget_accounts", "budget_slices", "inflight_shares", "breakers", "circuit_counts",
    "model_profiles",
}  # fmt: skip
"""The listed exceptions; the migration tool's own tables begin with `_yoyo` or `yoyo`."""

OPERATORS = {"api_keys", "model_grants"}
"""Only operators change them."""

FOR_EVER = {"budget_entries", "budget_spenders", "budget_usage"}
"""The ledger is written and corrected, never deleted."""

FILLING: dict[str, Any] = {
    "uuid": "gen_random_uuid()",
    "text": "gen_random_uuid()::text",
    "bytea": "uuid_send(gen_random_uuid())",
    "jsonb": "'{}'::jsonb",
    "_text": "'{}'::text[]",
    "timestamptz": "now()",
    "date": "current_date",
    "int2": "1",
    "int4": "1",
    "int8": "1",
    "bool": "false",
}


def tables(dsn: str) -> dict[str, bool]:
    """Every table of ours, and whether it has a tenant."""
    rows = execute(
        dsn,
        """select c.relname, exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id'
                                        and not a.attisdropped)
             from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
              and c.relname not like '\\_yoyo%' and c.relname not like 'yoyo%'""",
    )
    return dict(rows)


def tenant_tables(dsn: str) -> list[str]:
    return sorted(name for name, has_tenant in tables(dsn).items() if has_tenant and name not in FLEET)


def insertion(dsn: str, table: str) -> str:
    """A statement for one row of a tenant: the columns that must be given, and no others."""
    columns = execute(
        dsn,
        """select a.attname, t.typname from pg_attribute a join pg_type t on t.oid = a.atttypid
            where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped and a.attnotnull and not a.atthasdef
              and a.attidentity = '' and a.attname <> 'tenant_id'""",
        table,
    )
    names = ", ".join(["tenant_id", *(name for name, _ in columns)])
    values = ", ".join(["%s", *(str(FILLING[kind]) for _, kind in columns)])
    return f"insert into {table} ({names}) values ({values})"


@pytest.fixture
def two(database: TestDatabase) -> tuple[UUID, UUID]:
    """Two tenants with a row in every tenant table."""
    with database.relay.system() as tx:
        first, second = (create_tenant(tx, name).id for name in ("first", "second"))
    for table in tenant_tables(database.admin):
        for tenant in (first, second):
            execute(database.admin, insertion(database.admin, table), tenant)
    return first, second


@pytest.fixture
def app(database: TestDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.dsn("app")) as connection:
        yield connection


def enter(connection: psycopg.Connection[Any], tenant: UUID) -> None:
    connection.execute("select set_config('muniment.tenant', %s, true)", [str(tenant)])


def test_a_table_has_a_tenant_or_is_a_listed_exception(database: TestDatabase) -> None:
    found = tables(database.admin)
    assert {name for name, has_tenant in found.items() if not has_tenant} <= FLEET
    assert len(tenant_tables(database.admin)) >= 12


def test_every_tenant_table_is_protected_by_both_policies(database: TestDatabase) -> None:
    for table in tenant_tables(database.admin):
        ((enabled, forced),) = execute(
            database.admin, "select relrowsecurity, relforcerowsecurity from pg_class where oid = %s::regclass", table
        )
        assert enabled, f"{table}: row-level security is off"
        assert forced, f"{table}: its owner is not bound"
        policies = dict(
            execute(
                database.admin,
                "select policyname, roles::text[] from pg_policies where schemaname = 'public' and tablename = %s",
                table,
            )
        )
        assert {name: set(roles) for name, roles in policies.items()} == {
            "tenant": {"muniment_app"},
            "system": {"muniment_owner", "muniment_relay"},
        }, table


def test_every_primary_key_starts_with_the_tenant(database: TestDatabase) -> None:
    rows = execute(
        database.admin,
        """select i.indrelid::regclass::text, a.attname from pg_index i
             join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
            where i.indisprimary and i.indrelid::regclass::text = any (%s)""",
        tenant_tables(database.admin),
    )
    assert {table: first for table, first in rows} == dict.fromkeys(tenant_tables(database.admin), "tenant_id")


def test_without_a_tenant_the_app_sees_nothing(
    database: TestDatabase, two: tuple[UUID, UUID], app: psycopg.Connection[Any]
) -> None:
    for table in tenant_tables(database.admin):
        assert app.execute(f"select count(*) from {table}".encode()).fetchone() == (0,), table


def test_after_a_tenant_transaction_the_next_one_sees_nothing(
    database: TestDatabase, two: tuple[UUID, UUID], app: psycopg.Connection[Any]
) -> None:
    enter(app, two[0])
    assert app.execute("select count(*) from jobs").fetchone() == (1,)
    app.commit()
    assert app.execute("select count(*) from jobs").fetchone() == (0,)


def test_a_tenant_sees_and_changes_only_its_own(
    database: TestDatabase, two: tuple[UUID, UUID], app: psycopg.Connection[Any]
) -> None:
    mine, other = two
    for table in tenant_tables(database.admin):
        with app.transaction(force_rollback=True):
            enter(app, mine)
            seen = app.execute(f"select distinct tenant_id from {table}".encode()).fetchall()
            assert seen == [(mine,)], table
        if table in OPERATORS:
            continue  # see test_the_app_cannot_touch_keys_tenants_or_operators
        if table in FOR_EVER:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), app.transaction():
                app.execute(f"delete from {table}".encode())
            continue
        with app.transaction(force_rollback=True):
            enter(app, mine)
            assert app.execute(f"delete from {table} where tenant_id = %s".encode(), [other]).rowcount == 0, table
            assert app.execute(f"delete from {table}".encode()).rowcount >= 1, table
        enter(app, mine)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), app.transaction():
            app.execute(f"update {table} set tenant_id = %s".encode(), [other])
        app.rollback()


def test_a_row_of_another_tenant_cannot_be_inserted(
    database: TestDatabase, two: tuple[UUID, UUID], app: psycopg.Connection[Any]
) -> None:
    for table in set(tenant_tables(database.admin)) - OPERATORS:
        statement = insertion(database.admin, table).encode()
        enter(app, two[0])
        app.execute(statement, [two[0]])  # the statement itself is sound
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"), app.transaction():
            app.execute(statement, [two[1]])
        app.rollback()


def test_the_app_cannot_touch_keys_tenants_or_operators(app: psycopg.Connection[Any]) -> None:
    for statement in (
        "select 1 from operator_keys",
        "select 1 from tenants",
        "update tenants set weight = 100",
        "update api_keys set scopes = '{manage}'",
        "delete from api_keys",
        "delete from model_grants",
        "insert into model_grants values (gen_random_uuid(), 'judge')",
        "update model_profiles set for_all = true",
        "alter table jobs disable row level security",
        "create table mine (n integer)",
        "set role muniment_owner",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), app.transaction():
            app.execute(statement.encode())


def test_the_exporter_reads_aggregates_only(database: TestDatabase) -> None:
    with psycopg.connect(database.dsn("exporter"), autocommit=True) as exporter:
        for table in tables(database.admin):
            if table == "function_versions":
                continue
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                exporter.execute(f"select 1 from {table}".encode())
        assert exporter.execute("select sum(ready_jobs) from backlog").fetchone() == (0,)


def test_an_update_by_the_owner_reports_its_rows(database: TestDatabase, two: tuple[UUID, UUID]) -> None:
    with psycopg.connect(database.dsn("owner"), autocommit=True) as owner:
        assert owner.execute("update jobs set trace = 'x'").rowcount == 2


def test_the_app_role_passes_the_check(database: TestDatabase) -> None:
    check_app_role(database.app)


@pytest.mark.parametrize(
    ("role", "reason"),
    [("owner", "owner"), ("relay", "every tenant"), ("superuser", "superuser"), ("bypass", "BYPASSRLS")],
)
def test_any_other_role_is_refused(database: TestDatabase, role: str, reason: str) -> None:
    made = f"bypass_{uuid7().hex[:12]}"
    execute(database.admin, f"create role {made} login password 'x' bypassrls")
    dsn = {"superuser": database.admin, "bypass": database.server.dsn(made, "x", database.name)}.get(role)
    try:
        with (
            Database(dsn or database.dsn(role), name="test-check", size=1) as db,
            pytest.raises(SettingsError, match=reason),
        ):
            check_app_role(db)
    finally:
        execute(database.admin, f"drop role {made}")
