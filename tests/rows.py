"""Job rows in any state, written straight into a test's database, for what looks at rows and not at work."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from core.ids import uuid7


def insert_jobs(dsn: str, tenant: UUID, queue: str, count: int = 1, **columns: Any) -> list[UUID]:
    """`count` jobs of one queue, in order; a timedelta means that long from now, by the database's clock.

    `dsn` is the administrator's or the owner's. Returns the ids."""
    ids = [uuid7() for _ in range(count)]
    given = {"kind": queue.partition(".")[0], "payload_bytes": 2, **columns}
    names = sql.SQL(", ").join(map(sql.Identifier, given))
    values = sql.SQL(", ").join(
        sql.SQL("now() + %s") if isinstance(value, timedelta) else sql.SQL("%s") for value in given.values()
    )
    statement = sql.SQL(
        "insert into jobs (tenant_id, job_id, queue, {}) select %s, u.id, %s, {} from unnest(%s::uuid[]) "
        "with ordinality as u (id, n) order by u.n"
    ).format(names, values)
    parameters = [json.dumps(value) if isinstance(value, dict) else value for value in given.values()]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement, [tenant, queue, *parameters, ids])
        connection.execute(
            "insert into job_payloads (tenant_id, job_id, payload) select %s, unnest(%s::uuid[]), '{}'", [tenant, ids]
        )
    return ids


def execute(dsn: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """One statement on a connection of its own, committed; its rows, if it has any."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def ago(seconds: float) -> timedelta:
    return timedelta(seconds=-seconds)
