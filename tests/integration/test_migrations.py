"""The schema: one head, a snapshot that is up to date, and migrations that run beside traffic (failure-cases.md S33, S34)."""

import threading
from uuid import UUID

import psycopg
import pytest

from core.ids import uuid7
from core.store.database import Database
from core.store.migrate import bootstrap, migrate, pending
from core.store.queries import scripts
from tests.conftest import PASSWORDS, TEMPLATE, TestDatabase
from tests.schema import SNAPSHOT, dump
from workers.embedded.postgres import Postgres


@pytest.fixture
def empty(postgres: Postgres):
    """The owner's address of a bootstrapped database without any table."""
    name = f"t_{uuid7().hex}"
    bootstrap(postgres.superuser_dsn, PASSWORDS, name)
    yield postgres.dsn("muniment_owner", PASSWORDS["owner"], name)
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
        admin.execute(f"drop database {name} with (force)".encode())


def test_s34_the_snapshot_is_the_schema(postgres: Postgres) -> None:
    address = postgres.superuser_dsn.rpartition("/")[0] + f"/{TEMPLATE}"
    assert dump(address) == SNAPSHOT.read_text("utf-8"), (
        "the schema changed: look at the difference, then `make schema`"
    )


def test_s34_migrations_are_numbered_without_gaps_and_have_one_head() -> None:
    names = [name for name, _ in scripts("migrations")]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for before, (name, text) in zip([None, *names], scripts("migrations"), strict=False):
        depends = next(line for line in text.splitlines() if line.startswith("-- depends:"))
        assert depends.removeprefix("-- depends:").strip() == ("" if before is None else before.removesuffix(".sql")), (
            name
        )
        assert "lock_timeout" in text, f"{name} may wait for a lock for ever"
        assert "statement_timeout" in text, f"{name} may hold a lock for ever"


def test_migrating_twice_and_at_once_leaves_nothing_pending(empty: str) -> None:
    applied: list[list[str]] = []
    threads = [threading.Thread(target=lambda: applied.append(migrate(empty))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    everything = [name.removesuffix(".sql") for name, _ in scripts("migrations")]
    assert sorted(filter(None, applied)) == [everything]
    assert len(applied) == 3
    with Database(empty, name="owner", size=1) as db:
        assert pending(db) == []


def test_an_empty_database_says_what_is_pending(empty: str) -> None:
    with Database(empty, name="owner", size=1) as db:
        assert pending(db) == [name.removesuffix(".sql") for name, _ in scripts("migrations")]


def test_older_functions_are_pending(database: TestDatabase) -> None:
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(b"update function_versions set digest = 'older'")
    assert pending(database.app) == ["functions"]
    assert migrate(database.dsn("owner")) == []
    assert pending(database.app) == []


def test_an_owner_update_reports_its_rows(database: TestDatabase, tenant: UUID) -> None:
    """FORCE binds the owner: without the system policy a migration's UPDATE would touch no row, silently."""
    with psycopg.connect(database.dsn("owner"), autocommit=True) as owner:
        assert owner.execute(b"update stores set updated_at = now()").rowcount == 1


def test_s33_functions_are_replaced_under_traffic(database: TestDatabase) -> None:
    """300 tenants, 500,000 job rows, claims going on: a migration ends in seconds and no statement fails."""
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(
            b"insert into tenants (tenant_id, name) select gen_random_uuid(), 'tenant-' || n from generate_series(1, 300) n"
        )
        admin.execute(
            b"insert into jobs (tenant_id, job_id, kind, queue, state, payload_bytes, finished_at)"
            b" select t.tenant_id, gen_random_uuid(), 'noop', 'embed.bulk', 'succeeded', 2, now()"
            b" from tenants t, generate_series(1, 1667)"
        )
    errors: list[Exception] = []
    rounds = 0
    stop = threading.Event()

    def traffic() -> None:
        nonlocal rounds
        while not stop.is_set():
            try:
                with database.relay.direct() as tx:
                    tx.rows("dispatch_jobs", queue="embed.bulk", inflight=4, limit=10, after=UUID(int=0), resend=30)
                    tx.rows("sweep_jobs", limit=10, max_crashes=3, keep_days=30)
                rounds += 1
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=traffic) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            with psycopg.connect(database.admin, autocommit=True) as admin:
                admin.execute(b"update function_versions set digest = 'older'")
            migrate(database.dsn("owner"))
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not errors
    assert rounds > 0
