"""Redis flushed, Redis killed, Postgres killed, each under load: no accepted job is lost and none is done twice.

Servers of their own: a killed one must not be another test's. `durable=False` leaves fsync out and synchronous_commit on, so
a killed Postgres loses no commit."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

from core.errors import MunimentError, Unavailable
from core.ids import uuid7
from core.store.database import Database
from core.store.migrate import bootstrap, migrate
from core.tenants.tenants import create_tenant
from tests.conftest import PASSWORDS, TestDatabase
from tests.fakes.fleet import Fleet, fleet, until
from tests.fakes.jobs import Jobs, effects, install_effects
from tests.rows import execute
from tests.services import short_folder
from workers.embedded.postgres import Postgres
from workers.embedded.server import Server
from workers.embedded.valkey import Valkey

pytestmark = pytest.mark.chaos
NAME = "muniment"
LEAST = 40
"""Jobs accepted before the disturbance, and again after it."""


@dataclass
class Stage:
    folder: Path
    postgres: Postgres
    valkey: Valkey

    def restart(self, server: Server, make: Callable[[int], Server]) -> None:
        """Killed; back on the same port, over the same folder."""
        port = server.port
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        make(port).start()

    def again(self, port: int) -> Postgres:
        self.postgres = Postgres(self.folder / "postgres", port=port, durable=False)
        return self.postgres


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with short_folder() as folder:
        stage = Stage(folder, Postgres(folder / "postgres", durable=False), Valkey(folder / "valkey", persistent=False))
        stage.postgres.start()
        stage.valkey.start()
        try:
            bootstrap(stage.postgres.superuser_dsn, PASSWORDS, NAME)
            migrate(stage.postgres.dsn("muniment_owner", PASSWORDS["owner"], NAME))
            install_effects(TestDatabase(stage.postgres, NAME, app(stage), app(stage)))
            yield stage
        finally:
            stage.valkey.stop()
            stage.postgres.stop()


def app(stage: Stage, role: str = "app") -> Database:
    return Database(stage.postgres.dsn(f"muniment_{role}", PASSWORDS[role], NAME), name=f"test-{role}", size=6)


@contextmanager
def running(stage: Stage, name: str) -> Iterator[tuple[Fleet, TestDatabase]]:
    with ExitStack() as stack:
        database = TestDatabase(
            stage.postgres, NAME, stack.enter_context(app(stage)), stack.enter_context(app(stage, "relay"))
        )
        with database.relay.system() as tx:
            tenant = create_tenant(tx, name).id
        parts = stack.enter_context(fleet(database, stage.valkey.url, tenant))
        parts.worker()
        parts.worker()
        parts.relay()
        yield parts, database


class Load:
    """Clients that go on whatever they are told, until the block ends."""

    def __init__(self, parts: Fleet) -> None:
        self._parts = parts
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(4)]
        self.accepted: list[UUID] = []
        parts.submitter()

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, n: int) -> None:
        while not self._stopping.wait(0.02):
            try:
                made = self._parts.accept("write", '{"text":"x"}') if n == 0 else self._parts.accept()
                self.accepted.append(made)
            except MunimentError:
                continue  # it was told so: not accepted

    def more(self) -> None:
        goal = len(self.accepted) + LEAST
        until(lambda: len(self.accepted) >= goal, 40, lambda: len(self.accepted))


def asked(jobs: Jobs) -> dict[UUID, dict[str, Any]]:
    """What the load asked for: not what looks after a store behind its writes, for which no worker runs here."""
    return {job: row for job, row in jobs.rows().items() if row["kind"] not in ("embed", "index")}


def under_load(stage: Stage, name: str, disturb: Callable[[], None]) -> None:
    with running(stage, name) as (parts, database):
        with Load(parts) as load:
            load.more()
            disturb()
            database.server = stage.postgres
            load.more()
        jobs = Jobs(database, parts.tenant)
        known = asked(jobs)
        assert set(load.accepted) <= set(known), "accepted, and not there"
        jobs.shift(30)  # what was owed when Redis lost it is owed still: only the wait is left out
        until(lambda: all(row["finished_at"] for row in asked(jobs).values()), 40, lambda: jobs.states())
        assert {row["state"] for row in asked(jobs).values()} == {"succeeded"}
        counters = [job for job, row in known.items() if row["kind"] == "counter"]
        done = {job: times for job, times in effects(database).items() if job in known}
        assert done == dict.fromkeys(counters, 1)
        written = "select count(*), count(distinct revision), max(revision) from documents where tenant_id = %s"
        writes = [row["kind"] for row in known.values()].count("write")
        assert execute(database.admin, written, parts.tenant) == [(writes, writes, writes)]


def test_d7_redis_flushed_under_load(stage: Stage) -> None:
    def flush() -> None:
        with redis.Redis.from_url(stage.valkey.url) as client:
            client.flushall()

    under_load(stage, "flushed", flush)


def test_d7_redis_killed_under_load(stage: Stage) -> None:
    def restart() -> None:
        def make(port: int) -> Valkey:
            stage.valkey = Valkey(stage.folder / "valkey", port=port, persistent=False)
            return stage.valkey

        stage.restart(stage.valkey, make)

    under_load(stage, "restarted", restart)


def test_s2_s7_postgres_killed_under_load(stage: Stage) -> None:
    under_load(stage, "recovered", lambda: stage.restart(stage.postgres, stage.again))


@pytest.mark.parametrize("faults", ["", "submit.disk=skip"], ids=["kept", "without the wait for the disk"])
def test_h1_what_was_acknowledged_survives_a_postgres_killed_at_that_moment(stage: Stage, faults: str) -> None:
    """One request at a time: its worker is woken before the disk has its row, its client is answered after."""
    missing = sum(missing_after_a_kill(stage, faults) for _ in range(4))
    assert (missing == 0) == (faults == ""), missing


def missing_after_a_kill(stage: Stage, faults: str) -> int:
    """Of five jobs that were acknowledged one after the other, Postgres killed at once."""
    with ExitStack() as stack:
        database = TestDatabase(
            stage.postgres, NAME, stack.enter_context(app(stage)), stack.enter_context(app(stage, "relay"))
        )
        with database.relay.system() as tx:
            tenant = create_tenant(tx, f"acknowledged-{uuid7().hex}").id
        parts = stack.enter_context(fleet(database, stage.valkey.url, tenant))
        parts.submitter(faults)
        accepted = [parts.accept() for _ in range(5)]
        stage.restart(stage.postgres, stage.again)
        database.server = stage.postgres
        until(lambda: answers(database.app), 30)
        return len(set(accepted) - set(Jobs(database, tenant).rows()))


def test_h1_what_postgres_forgot_in_a_crash_is_not_acknowledged(stage: Stage) -> None:
    """It is back before its answer is due: a new server's word about the disk says nothing of the old one's rows."""
    with ExitStack() as stack:
        database = TestDatabase(
            stage.postgres, NAME, stack.enter_context(app(stage)), stack.enter_context(app(stage, "relay"))
        )
        with database.relay.system() as tx:
            tenant = create_tenant(tx, "forgotten").id
        seldom(database, "10s")
        stack.callback(seldom, database, "200ms")
        parts = stack.enter_context(fleet(database, stage.valkey.url, tenant))
        one = parts.submitter("submit.sent=sleep:1:4")
        request = parts.request()
        future = one.accept(request)
        until(lambda: request.job_id in Jobs(database, tenant).rows(), 3)
        stage.restart(stage.postgres, stage.again)
        database.server = stage.postgres
        until(lambda: answers(database.app), 3)
        with pytest.raises(Unavailable, match="crashed"):
            future.result(20)
        assert not Jobs(database, tenant).rows()


def seldom(database: TestDatabase, delay: str) -> None:
    """How often Postgres writes what nobody waits for."""
    execute(database.admin, f"alter system set wal_writer_delay = '{delay}'")
    execute(database.admin, "select pg_reload_conf()")


def test_an_outage_of_postgres_is_logged_when_it_begins_and_when_it_ends(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "core.store.database")
    with app(stage) as db:
        port = stage.postgres.port
        with db.system() as tx:
            tx.value("clock")
        os.kill(stage.postgres.pid, signal.SIGKILL)
        stage.postgres.stop()
        for _ in range(2):
            with pytest.raises(Unavailable), db.system() as tx:
                tx.value("clock")
        stage.postgres = Postgres(stage.folder / "postgres", port=port, durable=False)
        stage.postgres.start()
        until(lambda: answers(db), 30)
        assert answers(db)
    told = [record.getMessage() for record in caplog.records if record.name == "core.store.database"]
    assert [text.split(":")[0].split(" after")[0] for text in told] == [
        "Postgres is away (test-app)",
        "Postgres is back (test-app)",
    ]


def answers(db: Database) -> bool:
    try:
        with db.system() as tx:
            return tx.value("clock") is not None
    except MunimentError:
        return False
