"""Procrastinate on Postgres, in a database of its own. `app` is what its own command line imports."""

import os
from typing import Any

import procrastinate
import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.bench.peers import Process

CONCURRENCY = 8
DATABASE = "bench_procrastinate"


def make_app(connector: Any) -> procrastinate.App:
    made = procrastinate.App(connector=connector)

    @made.task(name="noop")
    def noop(tenant_id: str, job_id: str) -> None:
        del tenant_id, job_id

    del noop  # kept by its name
    return made


class Procrastinate:
    name = "Procrastinate"
    settings = f"Postgres, concurrency {CONCURRENCY}, 1 process, finished jobs kept"

    def __init__(self, superuser_dsn: str) -> None:
        """`superuser_dsn`: a URL that may create databases; its own one is dropped in `close`."""
        self._admin = psycopg.connect(superuser_dsn, autocommit=True)
        self._admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(DATABASE)))
        self._admin.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
        self._dsn = make_conninfo(superuser_dsn, dbname=DATABASE)
        self._process: Process | None = None
        with make_app(procrastinate.SyncPsycopgConnector(conninfo=self._dsn)).open() as made:
            made.schema_manager.apply_schema()
        self._watch = psycopg.connect(self._dsn, autocommit=True)

    def enqueue(self, count: int) -> None:
        with make_app(procrastinate.SyncPsycopgConnector(conninfo=self._dsn)).open() as made:
            for start in range(0, count, 1_000):
                numbers = range(start, min(start + 1_000, count))
                jobs: list[Any] = [{"tenant_id": "tenant", "job_id": f"job-{number}"} for number in numbers]
                made.tasks["noop"].batch_defer(*jobs)
        self._watch.execute("vacuum analyze procrastinate_jobs")

    def left(self) -> int:
        row = self._watch.execute(
            "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
        ).fetchone()
        assert row is not None
        return row[0]

    def start(self) -> None:
        self._process = Process(
            [
                *("-m", "procrastinate", "--app", "tests.bench.peers.procrastinate_peer.app"),
                *("worker", "--concurrency", str(CONCURRENCY)),
            ],
            {"BENCH_PROCRASTINATE_DSN": self._dsn},
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._watch.close()
        self._admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(DATABASE)))
        self._admin.close()


if "BENCH_PROCRASTINATE_DSN" in os.environ:  # we are the worker
    app = make_app(procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_PROCRASTINATE_DSN"]))
