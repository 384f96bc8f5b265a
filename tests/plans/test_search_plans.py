"""The hot statements of records, search and its routes at 100,000 records: no table is read whole, and few pages are touched,
also before the tables were ever analysed: then the planner knows nothing of what a bulk write has just put there."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from core.ids import uuid7
from core.store.queries import queries
from tests.plans.costs import Address, Cost, check, cost, least, own_database
from workers.embedded.postgres import Postgres

TABLES = (
    "lexical_indexes", "lexical_segments", "lexical_postings", "lexical_scopes", "records", "stores", "documents", "messages",
    "erasures", "record_entities", "vectors", "vector_sets",
)  # fmt: skip
STATE: dict[str, Any] = {
    "version": "1", "build": "1", "epoch": "0", "layout": "0", "named": "0", "small": "20000", "have": "{}",
    "terms": None, "workspace": None, "session": None,
}  # fmt: skip
SPACE = UUID(int=7)
SEEN: dict[str, Any] = {"workspace": None, "session": "s-7"}
NUMBERS = "{" + ",".join(map(str, range(3, 2000, 10))) + "}"

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
insert into documents (tenant_id, store_id, document_id, revision, position, scope, session_id, event_at, state, canonical,
                       sha256)
select tenant_id, store_id, document_id, revision, position, scope, 's-' || number % 40, event_at, 'archived', canonical,
       sha256
  from records;
insert into messages (tenant_id, store_id, document_id, ordinal, role, content)
select tenant_id, store_id, document_id, n, 'user', 'hello' from records, generate_series(0, 1) n where number % 2 = 0;
insert into erasures (tenant_id, store_id, record_id, revision)
select tenant_id, store_id, 'gone-' || number, revision from records;
insert into record_entities (tenant_id, store_id, entity, number)
select tenant_id, store_id, e.entity, number
  from records, lateral (values ('common'), ('name-' || number % 500), ('only-' || number)) e (entity);
insert into vectors (tenant_id, content, space, vector)
select tenant_id, content, %(space)s, '\\x0000803f00000000' from records;
insert into vector_sets (tenant_id, store_id, space, model, dimensions, filled)
select tenant_id, store_id, %(space)s, 'm', 2, next_number from stores;
"""

STATEMENTS: dict[str, tuple[dict[str, Any], int, int]] = {
    # name: (values, pages at most, rows at least)
    "lexical_state": (STATE | {"known": "2000"}, 30, 1),
    "lexical_state, one record behind": (STATE | {"known": "1999"}, 40, 1),
    "lexical_state, with nothing": (
        STATE | {"known": "0", "build": "-1", "terms": [f"term{n}" for n in range(1, 13)]}, 1_200, 20,
    ),
    "lexical_state, of a session": (STATE | {"known": "2000", "workspace": "w", "session": "session-7"}, 120, 1),
    "lexical_postings": ({"build": "1", "terms": [f"term{n}" for n in range(1, 13)]}, 1_200, 100),
    "segment_postings": ({"after": "term2", "limit": 20}, 60, 20),
    "delete_postings": ({"limit": 20}, 200, 0),
    "packed_segments": ({"build": 1, "first": 1900, "end": 2000}, 150, 100),
    "sealed_segments": ({"build": 1}, 150, 19),
    "segment_columns": ({}, 150, 19),
    "lexical_indexes": ({}, 20, 1),
    "wanted_index": ({}, 20, 1),
    "indexable_records": ({"first": 500, "end": 550}, 120, 50),
    "visible_records": ({"revision": 2000, "workspace": None, "session": None, "after": 700, "limit": 50}, 120, 50),
    "segments_of_numbers": ({"numbers": [150]}, 250, 1),
    "postings_of_terms": ({"terms": ["term5", "term9"]}, 40, 2),
    "lexical_ids": ({"build": "1", "named": "0"}, 200, 100),
    "segment_revisions": ({}, 20, 1),
    "ids_of_numbers": ({"numbers": NUMBERS}, 1_000, 1),
    "records_by_number": ({"numbers": "{7,100,1999}"}, 30, 3),
    "known_entities": ({"entities": ["common", "name-7", "nobody"]}, 40, 2),
    "records_with_entities": ({"entities": ["common", "name-7"], "end": "2000", "limit": 2000}, 2_200, 2),
    "visible_records_with_entities": ({"entities": ["common", "name-7"], "end": "2000", "limit": 50, **SEEN}, 400, 2),
    "entities_of_records": ({"numbers": "{7,100,1999}"}, 50, 9),
    "records_before": ({"moment": "infinity", "end": 1990, "limit": 20, **SEEN}, 80, 20),
    "records_from": ({"moment": "-infinity", "end": 1990, "limit": 200, **SEEN}, 400, 200),
    "vector_state": ({"space": SPACE}, 20, 1),
    "vector_set": ({"space": SPACE}, 20, 1),
    "vectors_between": ({"space": SPACE, "first": 1000, "end": 1200}, 1_600, 1),
    "vectors_of_numbers": ({"space": SPACE, "numbers": "{7,100,1999}"}, 50, 3),
    "records_to_embed": ({"space": SPACE, "first": 1000, "end": 2000, "limit": 50}, 600, 50),
    "records_to_embed, of all": ({"space": SPACE, "first": 0, "end": 2000, "limit": 256}, 2_500, 256),
    "get_record": ({"id": "r7", "revision": None}, 30, 1),
    "get_record, a document at a revision": ({"id": "d7", "revision": 1999}, 30, 1),
    "get_erasure": ({"id": "gone-7"}, 20, 1),
    "taken_ids": ({"ids": [*(f"new-{n}" for n in range(50)), "r7", "d8", "gone-9"]}, 900, 3),
    "list_records": ({"position": 1000, "ordinal": -1, "revision": 2000, "limit": 50}, 200, 50),
    "export_records": ({"position": 1000, "ordinal": -1, "revision": 2000, "limit": 50, "bytes": 2**22}, 500, 50),
    "get_messages": ({"document": "d8", "after": -1, "limit": 100}, 20, 2),
    "records_of_documents": ({"documents": ["d7", "d8"]}, 850, 2),  # of an erasure: once a store at worst
    "documents_to_erase": ({"id": "r7", "session": None, "workspace": None}, 40, 1),
    "documents_to_erase, of a session": ({"id": None, "session": "s-7", "workspace": None}, 250, 50),
    "reading_config": ({}, 20, 1),
    "store_revision": ({}, 20, 1),
    "scope_codes": ({"scopes": ["session"], "workspaces": [""], "sessions": ["session-9"]}, 60, 1),
}  # fmt: skip


def run(connection: Connection[Any], tenant: UUID, name: str, store: UUID, segments: list[int]) -> Cost:
    values = {"tenant": tenant, "store": store, "segment": segments[0], **STATEMENTS[name][0]}
    if name == "lexical_postings":
        values["segments"] = "{" + ",".join(map(str, segments)) + "}"
    if name == "segment_columns":
        values["segments"] = segments
    return cost(connection, tenant, getattr(queries(), name.partition(",")[0]).sql, values, TABLES)


@pytest.fixture(scope="module")
def server(postgres: Postgres) -> Iterator[Address]:
    with own_database(postgres) as address:
        yield address


@pytest.fixture(scope="module")
def costs(server: Address) -> dict[str, dict[str, Cost]]:
    """By what the planner knew."""
    tenant = uuid7()
    with (
        psycopg.connect(server("owner"), autocommit=True) as owner,
        psycopg.connect(server("app"), autocommit=True) as old,
    ):
        for table in TABLES:
            owner.execute(f"alter table {table} set (autovacuum_enabled = off)".encode())
        owner.execute("insert into tenants (tenant_id, name) values (%s, 'one')", [tenant])
        for statement in FILL.split(";\n"):
            if statement.strip():
                values = {
                    name: value for name, value in (("tenant", tenant), ("space", SPACE)) if f"%({name})s" in statement
                }
                owner.execute(statement.encode(), values or None)
        ((store,),) = owner.execute("select store_id from stores where next_number > 0 limit 1").fetchall()
        rows = owner.execute(
            "select segment_id from lexical_segments where store_id = %s and packed is null order by 1", [store]
        )
        segments = [row[0] for row in rows.fetchall()]
        kept = {name: least(partial(run, old, tenant, name, store, segments)) for name in STATEMENTS}
        owner.execute("analyze")
        with psycopg.connect(server("app"), autocommit=True) as new:
            fresh = {name: least(partial(run, new, tenant, name, store, segments)) for name in STATEMENTS}
    return {"unknown": kept, "analysed": fresh}


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize("statistics", ["unknown", "analysed"])
def test_no_statement_reads_a_table_whole(costs: dict[str, dict[str, Cost]], statistics: str, name: str) -> None:
    _, pages, rows = STATEMENTS[name]
    check(name, costs[statistics][name], pages * (1 if statistics == "analysed" else 5), rows)
