"""Listing jobs costs a page, not the tenant's rows: whatever is asked for, wherever it lies, with 100,000 rows of others.

One tenant's jobs, oldest first: OLD in every state, SUCCEEDED, OLD again, then a QUEUED backlog. So each state but two has
its jobs behind many of another.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection, sql
from psycopg.rows import DictRow, dict_row

from core.ids import uuid7
from core.jobs.service import NEWEST
from core.store.queries import queries
from tests.plans.costs import own_database
from workers.embedded.postgres import Postgres

SUCCEEDED = 60_000
QUEUED = 40_000
OLD = 30
STATES = ("queued", "running", "waiting", "deferred", "succeeded", "failed", "cancelled", "dead")
LIMIT = 21

FILL = """
insert into jobs (tenant_id, job_id, store_id, parent_id, kind, queue, state, payload_bytes, finished_at, due_at, sent_at)
select %(tenant)s, uuidv7(clock.shift), %(store)s, %(parent)s, 'write', q.queue, %(state)s, 100,
       case when %(state)s in ('succeeded', 'failed', 'cancelled', 'dead') then now() end, now() + interval '1 day',
       case when %(state)s in ('succeeded', 'running') then now() end
  from generate_series(1, %(count)s) i,
       lateral (select make_interval(secs => %(age)s - i * 0.001) * -1 as shift) clock,
       lateral (select (array['write.interactive', 'read.interactive', 'import.bulk'])[i %% 3 + 1] as queue) q
"""


@dataclass
class World:
    owner: Connection[Any]
    app: Connection[Any]
    tenant: UUID
    store: UUID
    rare: UUID
    parent: UUID

    def fill(self, state: str, count: int, age: float, store: UUID | None = None, parent: UUID | None = None) -> None:
        values = {"state": state, "count": count, "age": age, "store": store or self.store, "parent": parent}
        self.owner.execute(FILL.encode(), {"tenant": self.tenant, **values})

    def page(self, name: str, **values: object) -> tuple[list[dict[str, Any]], int]:
        """Its rows, and the pages that it touched."""
        statement, names = prepared(name)
        given = [
            {"tenant": self.tenant, "before": NEWEST, "store": None, "limit": LIMIT, **values}[name] for name in names
        ]
        with self.app.transaction():
            self.app.execute("select set_config('muniment.tenant', %s, true)", [str(self.tenant)])
            self.app.execute(f"prepare page as {statement}".encode())
            call = sql.SQL("execute page ({})").format(sql.SQL(", ").join(map(sql.Literal, given)))
            rows = self.app.execute(call).fetchall()
            self.app.execute(call)  # the first run may read the catalogue
            explained = self.app.execute(sql.SQL("explain (analyze, buffers, format json) ") + call).fetchone()
            self.app.execute("deallocate page")
        assert explained is not None
        plan = explained["QUERY PLAN"][0]["Plan"]
        return rows, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def prepared(name: str) -> tuple[str, list[str]]:
    """A statement of sql/queries with numbers for its parameters, and their names by number."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", number, getattr(queries(), name).sql), names


@pytest.fixture(scope="module", params=["force_custom_plan", "force_generic_plan"])
def world(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[World]:
    """Planned for the values at hand, as a statement's first runs are, and for any values, as later ones may be."""
    with own_database(postgres) as address:

        def connect(role: str) -> Connection[Any]:
            return Connection[DictRow].connect(address(role), autocommit=True, row_factory=dict_row)

        with connect("owner") as owner, connect("app") as app:
            made = World(owner, app, uuid7(), uuid7(), uuid7(), uuid7())
            owner.execute("insert into tenants (tenant_id, name) values (%s, 'tenant')", [made.tenant])
            for store, label in ((made.store, "journal"), (made.rare, "rare")):
                owner.execute(
                    "insert into stores (tenant_id, store_id, name, config, policy_hash) values (%s, %s, %s, '{}', '')",
                    [made.tenant, store, label],
                )
            app.execute(f"set plan_cache_mode = {request.param}".encode())
            for age in (4_000, 2_000):
                for n, state in enumerate(STATES):
                    made.fill(state, OLD, age - n, parent=made.parent if age == 4_000 else None)
                made.fill("dead", 3, age + 100, store=made.rare)
                made.fill("succeeded" if age == 4_000 else "queued", SUCCEEDED if age == 4_000 else QUEUED, age - 100)
            owner.execute("vacuum analyze jobs")
            yield made


RARE = 400
BACKLOG = 6_000
MOST = {"succeeded": BACKLOG, "queued": BACKLOG, "running": RARE}
"""Pages at most, of more than 4,000 that the table has. Those who pass over the whole backlog have more."""


@pytest.mark.parametrize("state", STATES)
def test_jobs_in_a_state_are_found_wherever_they_are(world: World, state: str) -> None:
    rows, pages = world.page("list_jobs_in", states=[state])
    assert len(rows) == LIMIT
    assert {row["state"] for row in rows} == {state}
    assert [row["job_id"] for row in rows] == sorted((row["job_id"] for row in rows), reverse=True)
    assert pages <= MOST.get(state, RARE)


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("queued", "succeeded")])
def test_a_list_goes_on_to_its_very_end(world: World, state: str) -> None:
    found: list[UUID] = []
    before, most = NEWEST, 0
    while True:
        rows, pages = world.page("list_jobs_in", states=[state], before=before)
        most = max(most, pages)
        if not rows:
            break
        found += [row["job_id"] for row in rows]
        before = found[-1]
    wanted = world.owner.execute(
        "select job_id from jobs where tenant_id = %s and state = %s order by job_id desc", [world.tenant, state]
    )
    assert found == [row["job_id"] for row in wanted]
    assert most <= RARE


def test_a_full_page_of_the_newest_costs_no_more_than_a_look_at_them(world: World) -> None:
    rows, pages = world.page("list_jobs_in", states=["queued", "succeeded"])
    assert len(rows) == LIMIT
    assert pages <= RARE
    rows, pages = world.page("list_jobs")
    assert len(rows) == LIMIT
    assert pages <= RARE
    deep = world.owner.execute("select job_id from jobs order by job_id offset 30000 limit 1").fetchone()
    assert deep is not None
    rows, pages = world.page("list_jobs", before=deep["job_id"])
    assert len(rows) == LIMIT
    assert pages <= RARE, "a page in the middle must not read what is before it"


def test_states_and_stores_combine(world: World) -> None:
    rows, pages = world.page("list_jobs_in", states=["dead", "running"], store="rare")
    assert [(row["state"], row["store"]) for row in rows] == [("dead", "rare")] * 6
    assert pages <= RARE
    rows, _ = world.page("list_jobs_in", states=["dead"], store="nowhere")
    assert rows == []
    mixed, _ = world.page("list_jobs_in", states=["dead", "running"])
    assert {row["state"] for row in mixed} <= {"dead", "running"}


def test_children_are_found_by_their_parent(world: World) -> None:
    rows, pages = world.page("list_children", parent=world.parent, states=["failed", "dead"])
    assert len(rows) == LIMIT
    assert {row["state"] for row in rows} <= {"failed", "dead"}
    assert pages <= RARE
