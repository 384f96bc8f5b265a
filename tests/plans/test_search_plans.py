"""The lexical index's hot statements at 100,000 records: no table is read whole, and few pages are touched, also before the
tables were ever analysed: then the planner knows nothing of what a bulk write has just put there."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from core.ids import uuid7
from core.store.queries import queries
from tests.conftest import PASSWORDS, TEMPLATE
from workers.embedded.postgres import Postgres

TABLES = ("lexical_indexes", "lexical_segments", "lexical_postings", "lexical_scopes", "records", "stores")
STATE: dict[str, Any] = {
    "version": "1", "build": "1", "epoch": "0", "layout": "0", "have": "{}", "workspace": None, "session": None,
}  # fmt: skip

FILL = """
insert into stores (tenant_id, store_id, name, config, policy_hash)
select %(tenant)s, gen_random_uuid(), 'empty' || n, '{}', '' from generate_series(1, 5000) n;
insert into lexical_indexes (tenant_id, store_id, build, version, state)
select tenant_id, store_id, 1, 1, 'active' from stores;
insert into stores (tenant_id, store_id, name, config, policy_hash, next_number, revision)
select %(tenant)s, gen_random_uuid(), 's' || n, '{}', '', 2000, 2000 from generate_series(1, 50) n;
insert into lexical_indexes (tenant_id, store_id, build, version, state, sealed_to, loose_from)
select tenant_id, store_id, 1, 1, 'active', 1900, 1900 from stores where next_number > 0;
insert into lexical_segments (tenant_id, store_id, build, first_number, end_number, first_revision, last_revision, lengths,
                              scopes, ordinals, pieces, revisions, ids)
select tenant_id, store_id, 1, n * 100, n * 100 + 100, 1, 1, bytes, bytes, bytes, bytes, bytes, bytes
  from stores, generate_series(0, 18) n, (values (decode(repeat('01', 100), 'hex'))) b (bytes) where next_number > 0;
insert into lexical_segments (tenant_id, store_id, build, first_number, end_number, first_revision, last_revision, lengths,
                              scopes, ordinals, pieces, revisions, ids, packed)
select tenant_id, store_id, 1, n, n + 1, 1, 1, '\\x01', '\\x01', '\\x01', '\\x01', '\\x01', '\\x01', '\\x00'
  from stores, generate_series(1900, 1999) n where next_number > 0;
insert into lexical_postings (tenant_id, store_id, segment_id, term, postings)
select tenant_id, store_id, segment_id, 'term' || n, '\\x0000000101' from lexical_segments, generate_series(1, 105) n
 where packed is null;
insert into lexical_scopes (tenant_id, store_id, code, scope, workspace_id, session_id)
select tenant_id, store_id, n, 'session', '', 'session-' || n from stores, generate_series(1, 200) n where next_number > 0;
insert into records (tenant_id, store_id, record_id, number, revision, position, ordinal, document_id, start_byte, end_byte,
                     scope, event_at, state, canonical, sha256, content)
select tenant_id, store_id, 'r' || n, n, n, n, 0, 'd' || n, 0, 1, 'global', now(), 'active', '{"a":1}', '\\x00',
       decode(md5(store_id::text || n), 'hex')
  from stores, generate_series(0, 1999) n where next_number > 0;
"""

STATEMENTS: dict[str, tuple[dict[str, Any], int, int]] = {
    # name: (values, pages at most, rows at least)
    "lexical_state": (STATE | {"known": "2000"}, 30, 1),
    "lexical_state, one record behind": (STATE | {"known": "1999"}, 40, 1),
    "lexical_state, of a session": (STATE | {"known": "2000", "workspace": "w", "session": "session-7"}, 120, 1),
    "lexical_postings": ({"build": "1", "terms": [f"term{n}" for n in range(1, 13)]}, 1_200, 100),
    "segment_postings": ({"after": "term2", "limit": 20}, 60, 20),
    "delete_postings": ({"limit": 20}, 200, 0),
    "packed_segments": ({"build": 1, "first": 1900, "end": 2000}, 150, 100),
    "sealed_segments": ({"build": 1}, 150, 19),
    "lexical_indexes": ({}, 20, 1),
    "wanted_index": ({}, 20, 1),
    "indexable_records": ({"first": 500, "end": 550}, 120, 50),
    "visible_records": ({"revision": 2000, "workspace": None, "session": None, "after": 700, "limit": 50}, 120, 50),
    "segments_of_numbers": ({"numbers": [150]}, 250, 1),
    "postings_of_terms": ({"terms": ["term5", "term9"]}, 40, 2),
    "scope_codes": ({"scopes": ["session"], "workspaces": [""], "sessions": ["session-9"]}, 60, 1),
}  # fmt: skip


@dataclass
class Cost:
    scanned: list[str]
    pages: int
    rows: int


def cost(connection: Connection[Any], tenant: UUID, name: str, store: UUID, segments: list[int]) -> Cost:
    values = {"tenant": tenant, "store": store, "segment": segments[0], **STATEMENTS[name][0]}
    if name == "lexical_postings":
        values["segments"] = "{" + ",".join(map(str, segments)) + "}"
    statement = getattr(queries(), name.partition(",")[0]).sql
    with connection.transaction(force_rollback=True):
        connection.execute("select set_config('muniment.tenant', %s, true)", [str(tenant)])
        before = scans(connection)
        explained = connection.execute(f"explain (analyze, buffers, format json) {statement}".encode(), values)
        plan: Any = explained.fetchone()[0]  # pyright: ignore[reportOptionalSubscript]
        after = scans(connection)
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    touched = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return Cost([table for table in TABLES if after[table] > before[table]], touched, round(top["Actual Rows"]))


def scans(connection: Connection[Any]) -> dict[str, int]:
    rows = connection.execute("select relname, seq_scan from pg_stat_xact_user_tables").fetchall()
    return dict.fromkeys(TABLES, 0) | {name: count or 0 for name, count in rows}


@pytest.fixture(scope="module")
def server(postgres: Postgres) -> Iterator[Callable[[str], str]]:
    name = f"plans_{uuid7().hex}"
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
        admin.execute(f"create database {name} template {TEMPLATE} owner muniment_owner".encode())
    yield lambda role: postgres.dsn(f"muniment_{role}", PASSWORDS[role], name)
    with psycopg.connect(postgres.superuser_dsn, autocommit=True) as admin:
        admin.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(scope="module")
def costs(server: Callable[[str], str]) -> dict[str, dict[str, Cost]]:
    """By what the planner knew."""
    tenant = uuid7()
    with (
        psycopg.connect(server("owner"), autocommit=True) as owner,
        psycopg.connect(server("app"), autocommit=True) as old,
    ):
        owner.execute("insert into tenants (tenant_id, name) values (%s, 'one')", [tenant])
        for statement in FILL.split(";\n"):
            if statement.strip():
                given = {"tenant": tenant} if "%(tenant)s" in statement else None
                owner.execute(statement.encode(), given)
        ((store,),) = owner.execute("select store_id from stores where next_number > 0 limit 1").fetchall()
        rows = owner.execute(
            "select segment_id from lexical_segments where store_id = %s and packed is null order by 1", [store]
        )
        segments = [row[0] for row in rows.fetchall()]
        kept = {name: least(old, tenant, name, store, segments) for name in STATEMENTS}
        owner.execute("analyze")
        with psycopg.connect(server("app"), autocommit=True) as new:
            fresh = {name: least(new, tenant, name, store, segments) for name in STATEMENTS}
    return {"unknown": kept, "analysed": fresh}


def least(connection: Connection[Any], tenant: UUID, name: str, store: UUID, segments: list[int]) -> Cost:
    """Of two runs, since the first may read the catalogue too."""
    return min((cost(connection, tenant, name, store, segments) for _ in range(2)), key=lambda cost: cost.pages)


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("statistics", ["unknown", "analysed"])
def test_no_statement_reads_a_table_whole(costs: dict[str, dict[str, Cost]], statistics: str, name: str) -> None:
    _, pages, rows = STATEMENTS[name]
    found = costs[statistics][name]
    assert found.scanned == [], f"{name}: {found}"
    assert found.rows >= rows, f"{name} found too little: the test measures nothing: {found}"
    assert found.pages <= pages * (1 if statistics == "analysed" else 5), f"{name}: {found}"
