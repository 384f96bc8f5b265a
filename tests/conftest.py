"""Fixtures of all suites: one Postgres and one Valkey a run (and a worker of pytest-xdist), a database of its own a test,
cloned from a migrated template, and a check that a test leaves neither threads nor open transactions behind."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest

from core.ids import uuid7
from core.store.database import Database
from core.store.migrate import bootstrap, migrate
from tests.services import short_folder, start_postgres, start_valkey
from workers.embedded.postgres import Postgres
from workers.embedded.valkey import Valkey

PASSWORDS = {role: f"test-{role}" for role in ("owner", "app", "relay", "exporter")}
TEMPLATE = "muniment_template"


@dataclass
class TestDatabase:
    """One database of one test. `app` and `relay` are pools of those roles; `admin` is the superuser's address."""

    __test__ = False

    server: Postgres
    name: str
    app: Database
    relay: Database

    def dsn(self, role: str) -> str:
        return self.server.dsn(f"muniment_{role}", PASSWORDS[role], self.name)

    @property
    def admin(self) -> str:
        return self.server.superuser_dsn.rpartition("/")[0] + f"/{self.name}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with short_folder() as folder:
        server = start_postgres(folder)
        try:
            bootstrap(server.superuser_dsn, PASSWORDS, TEMPLATE)
            migrate(server.dsn("muniment_owner", PASSWORDS["owner"], TEMPLATE))
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    with short_folder() as folder:
        server = start_valkey(folder)
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[TestDatabase]:
    name = f"t_{uuid7().hex}"
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
        admin.execute(f"create database {name} template {TEMPLATE} owner muniment_owner".encode())
    app = Database(postgres.dsn("muniment_app", PASSWORDS["app"], name), name="test-app", size=8)
    relay = Database(postgres.dsn("muniment_relay", PASSWORDS["relay"], name), name="test-relay", size=4)
    try:
        with app, relay:
            yield TestDatabase(postgres, name, app, relay)
    finally:
        with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
            admin.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def redis_url(valkey: Valkey) -> Iterator[str]:
    """A Redis that is empty before the test; tests of one process share the server, one after the other."""
    import redis

    with redis.Redis.from_url(valkey.url, socket_timeout=5) as client:
        client.flushall()
        yield valkey.url


@pytest.fixture
def tenant(database: TestDatabase) -> UUID:
    """A fresh tenant with the store `journal`."""
    from core.tenants.tenants import create_tenant

    with database.relay.system() as tx:
        return create_tenant(tx, f"tenant-{uuid7().hex}").id


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """A test ends with the threads it began with: what it started, it stopped."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while left := [t for t in set(threading.enumerate()) - before if t.is_alive() and not _allowed(t)]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads left running: {[t.name for t in left]}")
        left[0].join(0.05)


def _allowed(thread: threading.Thread) -> bool:
    # Starlette's thread pool and asyncio's default executor live as long as their loop's process; so does the thread that
    # helps large vector searches (core/search/vectors/matrix.py).
    return thread.name.startswith(("AnyIO worker", "asyncio_", "ThreadPoolExecutor", "pytest_timeout", "similar"))
