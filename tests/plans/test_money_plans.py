"""The ledger's statements touch what they need of `budget_entries` and no more, whether it is empty or holds 100,000 rows.

As in test_job_plans.py: with plans that a session made while the table was empty, and with fresh ones."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
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

ENTRIES = 100_000
TENANTS = 20
DEAD = 10
FILL = """
insert into budget_entries (tenant_id, entry_id, provider, store_id, job_id, stage, call_class, state, outcome, reserve,
                            input_estimate, cost, owner, created_at, ended_at)
select t.tenant_id, gen_random_uuid(), 'jev', t.tenant_id, j.job_id, 'judge', 'read',
       case when i <= {open} then 'reserved' else 'settled' end, 'ok', 10, 3, 3,
       case when i <= {dead} then %(dead)s::uuid else %(owner)s::uuid end, now() - interval '1 d', now()
  from generate_series(1, {entries}) i
  join (select tenant_id, row_number() over (order by tenant_id) as n from tenants) t on t.n = i %% {tenants} + 1
  cross join lateral (select case when i %% 10 = 0 then gen_random_uuid() else t.tenant_id end as job_id) j
"""
RESERVE = """select * from budget_reserve(%(owner)s, 'jev', {part}, array[gen_random_uuid()], array[%(tenant)s]::uuid[],
  array[%(tenant)s]::uuid[], array[{job}]::uuid[], array['judge'], array['read'], array[10], array[3],
  array[180.0]::float8[])"""
FINISH = """select * from budget_finish('jev', false, array[%(entry)s]::uuid[], array[%(tenant)s]::uuid[], array['settled'],
  array['ok'], array[3], array[1], array[1])"""


def named(name: str, **values: str) -> str:
    """A statement of sql/queries with literals for its parameters."""
    text: str = getattr(queries(), name).sql
    for parameter, literal in values.items():
        text = text.replace(f"%({parameter})s", literal)
    return text


NO_FILTER = {"stores": "null", "limit": "100", "after_provider": "null"}
STATEMENTS: dict[str, tuple[str, str, int, int]] = {
    # name: (role, statement, pages at most, rows at least when there is work)
    "reserve": ("app", RESERVE.format(part="0", job="null"), 60, 1),
    "reserve of a slice": ("app", RESERVE.format(part="0.001", job="null"), 90, 1),
    "finish": ("app", FINISH, 90, 1),
    "unended": ("app", "select * from budget_unended(array[%(entry)s]::uuid[], array[%(tenant)s]::uuid[])", 120, 1),
    "settle_dead": ("relay", "select * from budget_settle_dead(200)", 90 * DEAD, DEAD),
    "totals": ("exporter", "select * from budget_totals", 120, 4),
    "usage": (
        "app",
        named("usage", by="'stage'", first="null", last="null", after_part="null", **NO_FILTER),
        60, 0,
    ),
    "usage of jobs": ("app", named("usage_of_jobs", job="null", before_job="null", **NO_FILTER), 900, 100),
    "usage of a job": ("app", named("usage_of_jobs", job="%(job)s", before_job="null", **NO_FILTER), 60, 1),
}  # fmt: skip


@dataclass
class Subject:
    tenant: UUID
    entry: UUID
    job: UUID
    owner: UUID = field(default_factory=uuid7)


def run(connection: Connection[Any], subject: Subject, name: str) -> Cost:
    return cost(connection, subject.tenant, STATEMENTS[name][1], vars(subject), ["budget_entries"])


@dataclass
class Costs:
    kept: dict[str, Cost]
    fresh: dict[str, Cost]


@pytest.fixture(scope="module")
def server(postgres: Postgres) -> Iterator[Address]:
    with own_database(postgres) as address:
        yield address


@pytest.fixture(scope="module")
def costs(server: Address) -> Costs:
    roles = ("app", "relay", "exporter")
    with ExitStack() as stack:
        owner = stack.enter_context(psycopg.connect(server("owner"), autocommit=True))
        for n in range(TENANTS):
            owner.execute("insert into tenants (tenant_id, name) values (%s, %s)", [uuid7(), f"tenant-{n}"])
        ((tenant,),) = owner.execute("select tenant_id from tenants order by 1 limit 1").fetchall()
        nobody = Subject(tenant, uuid7(), uuid7())
        owner.execute("insert into process_leases values (%s, now() + interval '1 h')", [nobody.owner])
        old = {role: stack.enter_context(psycopg.connect(server(role), autocommit=True)) for role in roles}
        for name, (role, *_) in STATEMENTS.items():
            for _ in range(8):
                run(old[role], nobody, name)
        fill = FILL.format(open=DEAD + 40, dead=DEAD, entries=ENTRIES, tenants=TENANTS)
        owner.execute(fill.encode(), {"dead": uuid7(), "owner": nobody.owner})
        ((entry, job),) = owner.execute(
            "select entry_id, job_id from budget_entries where tenant_id = %s and state = 'reserved' limit 1", [tenant]
        ).fetchall()
        ((job,),) = owner.execute(
            "select job_id from budget_entries where tenant_id = %s and job_id <> tenant_id limit 1", [tenant]
        ).fetchall()
        owner.execute(
            """insert into budget_spenders (tenant_id, scope, scope_id, provider)
               select tenant_id, scope, tenant_id, 'jev' from tenants, unnest(array['tenant', 'store']) scope"""
        )
        subject = Subject(tenant, entry, job, nobody.owner)
        kept = {name: least(partial(run, old[role], subject, name)) for name, (role, *_) in STATEMENTS.items()}
        owner.execute("analyze budget_entries")
        new = {role: stack.enter_context(psycopg.connect(server(role), autocommit=True)) for role in roles}
        return Costs(
            kept, {name: least(partial(run, new[role], subject, name)) for name, (role, *_) in STATEMENTS.items()}
        )


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_plan_made_on_an_empty_ledger_serves_a_large_one(costs: Costs, name: str) -> None:
    check(name, costs.kept[name], *STATEMENTS[name][2:])


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_large_ledger_is_not_read_whole(costs: Costs, name: str) -> None:
    check(name, costs.fresh[name], *STATEMENTS[name][2:])
