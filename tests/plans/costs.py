"""What one run of a statement costs, as Postgres explains it."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection

from core.ids import uuid7
from tests.conftest import PASSWORDS, TEMPLATE
from workers.embedded.postgres import Postgres

Address = Callable[[str], str]
"""The address of a database for a role."""


@dataclass(frozen=True)
class Cost:
    scanned: tuple[str, ...]
    """The watched tables that were read whole."""
    pages: int
    rows: int


@contextmanager
def own_database(postgres: Postgres) -> Iterator[Address]:
    """A migrated database that nobody else uses: its size and its statistics are the test's."""
    name = f"plans_{uuid7().hex}"
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
        admin.execute(f"create database {name} template {TEMPLATE} owner muniment_owner".encode())
    try:
        yield lambda role: postgres.dsn(f"muniment_{role}", PASSWORDS[role], name)
    finally:
        with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
            admin.execute(f"drop database {name} with (force)".encode())


def cost(
    connection: Connection[Any], tenant: UUID, statement: str, values: Mapping[str, object], tables: Collection[str]
) -> Cost:
    """Of one run as `tenant`, rolled back. `tables`: those to watch; `values` may hold more than the statement asks for."""
    given = {name: value for name, value in values.items() if f"%({name})s" in statement}
    with connection.transaction(force_rollback=True):
        connection.execute("select set_config('muniment.tenant', %s, true)", [str(tenant)])
        before = _scans(connection)
        explained = connection.execute(f"explain (analyze, buffers, format json) {statement}".encode(), given)
        plan: Any = explained.fetchone()[0]  # pyright: ignore[reportOptionalSubscript]
        after = _scans(connection)
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    scanned = tuple(table for table in tables if after.get(table, 0) > before.get(table, 0))
    return Cost(scanned, top["Shared Hit Blocks"] + top["Shared Read Blocks"], round(top["Actual Rows"]))


def least(run: Callable[[], Cost]) -> Cost:
    """Of two runs, since the first may read the catalogue too."""
    return min(run(), run(), key=lambda found: found.pages)


def check(name: str, found: Cost, pages: int, rows: int) -> None:
    assert found.scanned == (), f"{name} read a table whole: {found}"
    assert found.rows >= rows, f"{name} found too little: the test measures nothing: {found}"
    assert found.pages <= pages, f"{name} touched too many pages: {found}"


def _scans(connection: Connection[Any]) -> dict[str, int]:
    rows = connection.execute("select relname, seq_scan from pg_stat_xact_user_tables").fetchall()
    return {name: count or 0 for name, count in rows}
