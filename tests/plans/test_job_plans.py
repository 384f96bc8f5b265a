"""The hot statements touch what they need of `jobs` and no more, whether it holds nothing, a page or 100,000 rows.

Two ways a plan goes wrong: the planner prefers to read the whole table, or a session planned its statement while the table
was empty, or a page long, and keeps that plan when it has grown. Each statement must do without a sequential scan both
ways, in a bounded number of pages.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from core.ids import uuid7
from tests.plans.costs import Address, Cost, check, cost, least, own_database
from workers.embedded.postgres import Postgres

FINISHED = 100_000
TENANTS = 50
WRITES = 100
READS = 60
DUE = 20

FILL = """
insert into jobs (tenant_id, job_id, store_id, kind, queue, state, payload_bytes, finished_at, due_at, sent_at, started_at)
select t.tenant_id, gen_random_uuid(), s.store_id, q.kind, q.queue, 'succeeded', 100, now() - interval '1 h',
       now() + interval '1 d', now() - interval '1 h', now() - interval '1 h'
  from generate_series(1, {count}) i
  join (select tenant_id, row_number() over (order by tenant_id) as n from tenants) t on t.n = i % {tenants} + 1
  join stores s on s.tenant_id = t.tenant_id
  join (values (0, 'write', 'write.interactive'), (1, 'read', 'read.interactive'), (2, 'import', 'import.bulk'))
         q (n, kind, queue) on q.n = i % 3
"""
OPEN = """
with made as (
  insert into jobs (tenant_id, job_id, store_id, kind, queue, payload_bytes)
  select t.tenant_id, gen_random_uuid(), s.store_id, q.kind, q.queue, 100
    from tenants t join stores s on s.tenant_id = t.tenant_id,
         (values ('write', 'write.interactive', {writes}), ('read', 'read.interactive', {reads})) q (kind, queue, count),
         lateral generate_series(1, q.count) n
  returning tenant_id, job_id)
insert into job_payloads (tenant_id, job_id, payload) select tenant_id, job_id, '{{}}' from made
"""


@dataclass
class Jobs:
    """A database with jobs in it, as one role's session sees it."""

    connection: Connection[Any]
    tenant: UUID
    store: UUID
    read: UUID
    write: UUID
    running: UUID
    token: UUID


def prepare(connection: Connection[Any]) -> None:
    for n in range(TENANTS):
        tenant = uuid7()
        connection.execute("insert into tenants (tenant_id, name) values (%s, %s)", [tenant, f"tenant-{n}"])
        connection.execute(
            "insert into stores (tenant_id, store_id, name, config, policy_hash) values (%s, %s, 'journal', '{}', '')",
            [tenant, uuid7()],
        )


def fill(connection: Connection[Any]) -> None:
    connection.execute(FILL.format(count=FINISHED, tenants=TENANTS).encode())
    connection.execute(OPEN.format(writes=WRITES, reads=READS).encode())
    connection.execute(
        """update jobs set sent_at = now(), due_at = now() - interval '1 s' where job_id in (
             select job_id from jobs where finished_at is null and kind = 'read' order by tenant_id desc limit %s)""",
        [DUE],
    )


def subject(connection: Connection[Any], role: Connection[Any]) -> Jobs:
    """One tenant's jobs; where there are none yet, ids that no row has."""
    ((tenant, store),) = connection.execute("select tenant_id, store_id from stores order by 1 limit 1").fetchall()
    ids: dict[str, UUID] = dict(
        connection.execute(
            """select distinct on (kind) kind, job_id from jobs where tenant_id = %s and finished_at is null
                order by kind, seq""",
            [tenant],
        ).fetchall()
    )
    running = connection.execute(
        """update jobs set state = 'running', sent_at = now(), started_at = now(), lease_token = gen_random_uuid(),
                  due_at = now() + interval '30 s'
            where job_id = (select job_id from jobs where tenant_id = %s and kind = 'read' and finished_at is null
                             order by seq desc limit 1)
        returning job_id, lease_token""",
        [tenant],
    ).fetchone() or (uuid7(), uuid7())
    return Jobs(role, tenant, store, ids.get("read", uuid7()), ids.get("write", uuid7()), *running)


@pytest.fixture(scope="module", params=[0, 60])
def server(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[Address]:
    """With no jobs, or a few."""
    with own_database(postgres) as address:
        with psycopg.connect(address("owner"), autocommit=True) as owner:
            prepare(owner)
            owner.execute(FILL.format(count=request.param, tenants=TENANTS).encode())
            owner.execute("analyze jobs")
        yield address


STATEMENTS: dict[str, tuple[str, str, int, int]] = {
    # name: (role, statement, pages at most, rows at least when there is work)
    "claim_job": ("app", "select * from claim_job(%(tenant)s, %(read)s, 'me', '30 s')", 60, 1),
    "claim_more": (
        "app", "select * from claim_more(%(tenant)s, 'read.interactive', 'read', 'me', '30 s', 32)", 1_600, 32,
    ),
    "claim_writes": (
        "app", "select * from claim_writes(%(tenant)s, %(store)s, %(write)s, 'me', '30 s', 500, 16777216)", 4_500, WRITES,
    ),
    "accept_read": (
        "app",
        """select * from accept_jobs(jsonb_build_array(jsonb_build_object('tenant', %(tenant)s, 'job', gen_random_uuid(),
             'store', 'journal', 'kind', 'read', 'queue', 'read.interactive', 'deadline', 45, 'keep', 60, 'attempts', 5,
             'inflight', 16)), array['{}'], '30 s')""",
        60, 1,
    ),
    "accept_write": (
        "app",
        """select * from accept_jobs(jsonb_build_array(jsonb_build_object('tenant', %(tenant)s, 'job', gen_random_uuid(),
             'store', 'journal', 'kind', 'write', 'queue', 'write.interactive', 'document', 'doc-1', 'keep', 60,
             'attempts', 5, 'route', 'r', 'key', 'k', 'body', '00', 'inflight', 16)), array['{}'], '30 s')""",
        90, 1,
    ),
    "finish_job": (
        "app", "select * from finish_job(%(tenant)s, %(running)s, %(token)s, 'succeeded', '{}', null, null)", 150, 1,
    ),
    "renew_jobs": (
        "app", "select * from renew_jobs(array[%(tenant)s], array[%(token)s], array[%(running)s], '30 s')", 60, 1,
    ),
    "dispatch_jobs": (
        "relay",
        "select * from dispatch_jobs('read.interactive', 16, 200, '00000000-0000-0000-0000-000000000000', '30 s')",
        8_000, 200,
    ),
    "dispatch_writes": (
        "relay",
        "select * from dispatch_writes('write.interactive', 16, 200, '00000000-0000-0000-0000-000000000000', '30 s')",
        3_000, TENANTS,
    ),
    "sweep_jobs": ("relay", "select * from sweep_jobs(200, 3, '30 d')", 1_500, DUE),
    "backlog": ("exporter", "select * from backlog", 20_000, 10),  # 8,000 unfinished jobs, one by one at worst
}  # fmt: skip


def run(jobs: Jobs, name: str) -> Cost:
    return cost(jobs.connection, jobs.tenant, STATEMENTS[name][1], vars(jobs), ["jobs"])


@dataclass
class Costs:
    """By statement. `kept`: by plans made while `jobs` was small; `fresh`: in a new session, after ANALYZE."""

    kept: dict[str, Cost]
    fresh: dict[str, Cost]


@pytest.fixture(scope="module")
def costs(server: Address) -> Iterator[Costs]:
    """Measured in one go, so that no test's ANALYZE mends another's plans."""
    roles = ("app", "relay", "exporter")
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(server("owner"), autocommit=True))
        old = {role: stack.enter_context(psycopg.connect(server(role), autocommit=True)) for role in roles}
        for name, (role, *_) in STATEMENTS.items():
            for _ in range(8):  # from the sixth on a generic plan may be kept
                run(subject(owner, old[role]), name)
        fill(owner)
        jobs = subject(owner, old["app"])
        kept = {
            name: least(partial(run, replace(jobs, connection=old[role]), name))
            for name, (role, *_) in STATEMENTS.items()
        }
        owner.execute("analyze jobs")
        new = {role: stack.enter_context(psycopg.connect(server(role), autocommit=True)) for role in roles}
        fresh = {
            name: least(partial(run, replace(jobs, connection=new[role]), name))
            for name, (role, *_) in STATEMENTS.items()
        }
        yield Costs(kept, fresh)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_plan_made_on_a_small_table_serves_a_large_one(costs: Costs, name: str) -> None:
    check(name, costs.kept[name], *STATEMENTS[name][2:])


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_large_table_is_not_read_whole(costs: Costs, name: str) -> None:
    check(name, costs.fresh[name], *STATEMENTS[name][2:])
