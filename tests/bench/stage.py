"""What the benchmarks run on: the embedded servers as `muniment up` starts them, and the product's processes."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from core.settings import PREFIX
from core.store.database import Database
from core.store.migrate import bootstrap, migrate
from core.tenants.keys import create_key
from core.tenants.tenants import create_tenant
from tests.bench.noop import COUNTERS
from tests.bench.peers import HttpServer, Process
from tests.services import short_folder
from workers.embedded.postgres import Postgres
from workers.embedded.valkey import Valkey

PASSWORDS = {role: f"bench-{role}" for role in ("owner", "app", "relay", "exporter")}
DATABASE = "muniment"
Started = TypeVar("Started", bound=Process)


class Stage:
    """Servers with a migrated database. `faults` goes to every process of the product that is started later."""

    def __init__(self, postgres: Postgres, valkey: Valkey, folder: Path) -> None:
        self.folder = folder
        self.postgres = postgres
        self.valkey = valkey
        self.faults = ""
        bootstrap(postgres.superuser_dsn, PASSWORDS, DATABASE)
        migrate(self.dsn("owner"))
        with self.admin() as admin:
            admin.execute(COUNTERS.encode())

    def dsn(self, role: str) -> str:
        return self.postgres.dsn(f"muniment_{role}", PASSWORDS[role], DATABASE)

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        """The superuser in the product's database, for counting."""
        address = self.postgres.superuser_dsn.rpartition("/")[0] + f"/{DATABASE}"
        with psycopg.connect(address, autocommit=True) as connection:
            yield connection

    def environment(self, role: str, **more: str) -> dict[str, str]:
        """The settings of one process, all others at their defaults."""
        given = {
            "database_url": self.dsn(role),
            "redis_url": self.valkey.url,
            "log": "text",
            "faults": self.faults,
            **more,
        }
        return {f"{PREFIX}{name.upper()}": value for name, value in given.items()}

    def tenant(self, name: str) -> tuple[UUID, str]:
        """A new tenant with its key."""
        with Database(self.dsn("relay"), name="bench", size=1) as db, db.system() as tx:
            tenant = create_tenant(tx, name)
            _, secret = create_key(tx, tenant.id, name="bench", scopes=["read", "write", "consolidate", "manage"])
        return tenant.id, secret

    @contextmanager
    def relay(self, **settings: str) -> Iterator[Process]:
        yield from _running(Process(["-m", "api.cli.main", "relay"], self.environment("relay", **settings)))

    @contextmanager
    def worker(self, group: str, **settings: str) -> Iterator[Process]:
        with self.admin() as admin:
            known = _workers(admin)
            process = Process(["-m", "tests.bench.worker", group], self.environment("app", **settings))
            deadline = time.monotonic() + 30
            while _workers(admin) <= known:
                if time.monotonic() > deadline or not process.alive:
                    raise RuntimeError(f"the worker {group} did not start: {process.complaint}")
                time.sleep(0.05)
        yield from _running(process)

    @contextmanager
    def api(self) -> Iterator[HttpServer]:
        server = HttpServer("tests.bench.app:create", self.environment("app", database_operator_url=self.dsn("relay")))
        yield from _running(server)

    def left(self) -> int:
        """Jobs that have not ended, but for those that look after a store behind its writes."""
        with self.admin() as admin:
            return _count(
                admin, b"select count(*) from jobs where finished_at is null and kind not in ('embed', 'index')"
            )

    def clear(self) -> None:
        """Between sections: no job, no message, and fresh statistics."""
        with self.admin() as admin:
            admin.execute(b"truncate jobs, job_payloads, job_results, idempotency_keys, bench_counters")
            admin.execute(b"delete from processes")
            admin.execute(b"vacuum analyze")
        import redis

        with redis.Redis.from_url(self.valkey.url, socket_timeout=10) as client:
            client.flushall()


@contextmanager
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        folder = stack.enter_context(short_folder())
        # Ports of their own, so that a server that is killed comes back at the same address.
        postgres = stack.enter_context(Postgres(folder / "postgres", port=_free_port()))
        valkey = stack.enter_context(Valkey(folder / "valkey", port=_free_port()))
        yield Stage(postgres, valkey, folder)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def headers(secret: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}", **more}


def body(value: object) -> bytes:
    return json.dumps(value).encode()


def _running(process: Started) -> Iterator[Started]:
    try:
        yield process
    finally:
        process.stop()


def _workers(admin: psycopg.Connection[Any]) -> int:
    return _count(admin, b"select count(*) from processes where role like 'worker-%'")


def _count(admin: psycopg.Connection[Any], query: bytes) -> int:
    row = admin.execute(query).fetchone()
    assert row is not None
    return int(row[0])
