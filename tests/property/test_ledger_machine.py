"""The ledger against a model, on real Postgres: any order of reservations, ends, changed caps, deaths and sweeps."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from core.budget.caps import set_provider_caps, set_store_caps, set_tenant_caps, settle_dead
from core.budget.lease import ProcessLease
from core.budget.ledger import Ledger
from core.budget.model import CallClass, Estimate, Reservation, Spender
from core.errors import BudgetSpent
from core.ids import uuid7
from core.settings import Settings
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase

PROVIDERS = ("jev", "openai")
pick = st.integers(min_value=0, max_value=10_000)
Scope = tuple[str, str, UUID]
"""(provider, scope, id)"""


def left_to(cap: int, call_class: str) -> int:
    """What of a cap a class may use: all but the last tenth, unless it is a read."""
    return cap if call_class == "read" else cap * 9 // 10


@dataclass
class Entry:
    """What the model knows of one reservation."""

    reservation: Reservation
    process: "Process"
    state: str = "reserved"
    cost: int = 0

    @property
    def held(self) -> int:
        return self.reservation.estimate.reserve if self.state == "reserved" else 0


class Process:
    """A process that may die; then its thread is gone and its lease has run out."""

    def __init__(self, database: TestDatabase, part: float) -> None:
        given = Settings(lease_seconds=600, budget_slice=part)
        self.lease = ProcessLease(database.app, given)
        self.lease.renew()
        self.ledger = Ledger(database.app, self.lease, given)
        self.sliced = part > 0
        self.alive = True


class LedgerMachine(RuleBasedStateMachine):
    def __init__(
        self, database: TestDatabase, admin: psycopg.Connection[Any], tenants: list[UUID], parts: tuple[float, ...]
    ) -> None:
        super().__init__()
        self.database = database
        self.admin = admin
        self.tenants = tenants
        self.parts = parts
        self.stores = {tenant: [uuid7(), uuid7()] for tenant in tenants}
        self.jobs = {tenant: [uuid7(), uuid7()] for tenant in tenants}
        self.entries: list[Entry] = []
        self.caps: dict[Scope, int | None] = {}
        self.job_caps: dict[tuple[str, UUID | None], int | None] = {}

    @initialize()
    def begin(self) -> None:
        self.sql(
            "truncate budget_entries, budget_spenders, budget_usage, budget_slices, process_leases; "
            "update budget_accounts set spent = 0, reserved = 0, leased = 0, cap = 100, job_cap = null",
        )
        self.account_caps: dict[str, int] = dict.fromkeys(PROVIDERS, 100)
        self.processes = [Process(self.database, part) for part in self.parts]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self.admin.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    # -- the model ------------------------------------------------------------------------------------------------------

    def used(self, provider: str, **of: UUID | None) -> int:
        """Spent and reserved by entries of a provider that name all of `of`."""
        return sum(
            entry.cost + entry.held
            for entry in self.entries
            if entry.reservation.provider == provider
            and all(getattr(entry.reservation.spender, name) == value for name, value in of.items())
        )

    def refusals(self, provider: str, who: Spender, amount: int) -> list[str]:
        """The caps that have no room for it, narrowest first."""
        found: list[str] = []
        limits = [
            cap
            for cap in (self.job_caps.get((provider, None)), self.job_caps.get((provider, who.tenant_id)))
            if cap is not None
        ]
        if who.job_id is not None and limits:
            used = self.used(provider, tenant_id=who.tenant_id, job_id=who.job_id)
            if used + amount > min(limits):
                found.append("job")
        for scope, name, value in (("store", "store_id", who.store_id), ("tenant", "tenant_id", who.tenant_id)):
            cap = None if value is None else self.caps.get((provider, scope, value))
            if cap is not None:
                used = self.used(provider, **{name: value})
                if used + amount > left_to(cap, who.call_class):
                    found.append(scope)
        if self.used(provider) + amount > left_to(self.account_caps[provider], who.call_class):
            found.append("provider")
        return found

    def some(self, n: int) -> Entry | None:
        """Mostly one that is open."""
        open_ones = [entry for entry in self.entries if entry.state == "reserved"]
        chosen = open_ones if open_ones and n % 4 else self.entries
        return chosen[n % len(chosen)] if chosen else None

    # -- what processes do ----------------------------------------------------------------------------------------------

    @rule(
        n=pick,
        provider=st.sampled_from(PROVIDERS),
        call_class=st.sampled_from(["read", "read", "flush", "consolidation"]),
        reserve=st.integers(0, 30),
        with_store=st.booleans(),
        with_job=st.booleans(),
    )
    def reserve(
        self, n: int, provider: str, call_class: CallClass, reserve: int, with_store: bool, with_job: bool
    ) -> None:
        tenant = self.tenants[n % 2]
        who = Spender(
            tenant,
            self.stores[tenant][n // 2 % 2] if with_store else None,
            self.jobs[tenant][n // 4 % 2] if with_job else None,
            ("judge", "extract")[n // 8 % 2],
            call_class,
        )
        process = self.processes[n % len(self.processes)]
        if not process.alive:
            return
        refusals = self.refusals(provider, who, reserve)
        estimate = Estimate(reserve=reserve, input=min(n % 7, reserve))
        try:
            made = process.ledger.reserve(provider, estimate, who)
        except BudgetSpent as error:
            refused = error.cap
        else:
            refused = ""
            self.entries.append(Entry(made, process))
        if refused:
            # Money in slices is out of reach of others, so an account may be refused before it is used up.
            early = refused == "provider" and any(one.sliced for one in self.processes)
            assert refusals[:1] == [refused] or (early and not refusals)
            return
        assert refusals == [], f"{reserve} was granted beyond the cap of the {refusals}"

    @rule(n=pick, how=st.sampled_from(["settle", "settle", "release", "estimate"]), cost=st.integers(0, 40))
    def end(self, n: int, how: str, cost: int) -> None:
        entry = self.some(n)
        if entry is None or not entry.process.alive:
            return
        ledger = entry.process.ledger
        if how == "settle":
            ledger.settle(entry.reservation, cost, cost * 10, cost)
            self.ended(entry, "settled", cost)
        elif how == "release":
            ledger.release(entry.reservation)
            self.ended(entry, "released", 0)
        else:
            ledger.settle_at_estimate(entry.reservation, "timeout")
            if entry.state == "reserved":
                self.ended(entry, "estimated", entry.reservation.estimate.input)

    def ended(self, entry: Entry, state: str, cost: int) -> None:
        if entry.state in ("reserved", "estimated"):
            entry.state, entry.cost = state, cost

    @rule(n=pick)
    def die(self, n: int) -> None:
        process = self.processes[n % len(self.processes)]
        if n % 3 or not process.alive:
            return
        self.sql(
            "update process_leases set lease_until = now() - interval '1 s' where process_id = %s",
            process.lease.process_id,
        )
        process.alive = False
        self.processes[n % len(self.processes)] = Process(self.database, self.parts[n % len(self.parts)])

    @rule(n=pick)
    def pause(self, n: int) -> None:
        """For longer than its lease; the relay settles for it, and it comes back."""
        process = self.processes[n % len(self.processes)]
        if n % 3 == 0:
            self.sql(
                "update process_leases set lease_until = now() - interval '1 s' where process_id = %s",
                process.lease.process_id,
            )
            self.settle_all()
            for entry in self.entries:
                if entry.process is process:
                    self.settled_for(entry)
            process.lease.renew()

    @rule(n=pick)
    def give_back(self, n: int) -> None:
        process = self.processes[n % len(self.processes)]
        process.ledger.close()

    # -- the relay and the operator -------------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 5))
    def sweep(self, limit: int) -> None:
        self.settle_all(limit)

    def settle_all(self, limit: int = 100) -> None:
        with self.database.relay.direct() as tx:
            while settle_dead(tx, limit):
                pass
        for entry in self.entries:
            if not entry.process.alive:
                self.settled_for(entry)

    def settled_for(self, entry: Entry) -> None:
        if entry.state == "reserved":
            entry.state, entry.cost = "estimated", entry.reservation.estimate.input

    @rule(n=pick, provider=st.sampled_from(PROVIDERS), cap=st.one_of(st.none(), st.integers(0, 150)))
    def set_cap(self, n: int, provider: str, cap: int | None) -> None:
        tenant = self.tenants[n % 2]
        store = self.stores[tenant][n // 2 % 2]
        which = n // 4 % 5
        with self.database.relay.system() as tx:
            if which == 0 and cap is not None:
                set_provider_caps(tx, {provider: cap}, {})
                self.account_caps[provider] = cap
            elif which == 1:
                set_provider_caps(tx, {}, {provider: cap})
                self.job_caps[provider, None] = cap
            elif which == 2:
                set_tenant_caps(tx, tenant, {}, {provider: cap})
                self.job_caps[provider, tenant] = cap
            elif which == 3:
                set_tenant_caps(tx, tenant, {provider: cap}, {})
                self.caps[provider, "tenant", tenant] = cap
            elif which == 4:
                set_store_caps(tx, tenant, store, {} if cap is None else {provider: cap})
                for name in PROVIDERS:
                    self.caps[name, "store", store] = cap if name == provider else None

    # -- what always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def the_ledger_says_what_the_model_says(self) -> None:
        if not hasattr(self, "processes"):
            return
        rows = self.sql("select entry_id, state, cost from budget_entries")
        assert {row[0]: row[1:] for row in rows} == {
            entry.reservation.entry_id: (entry.state, entry.cost) for entry in self.entries
        }
        with self.database.relay.system() as tx:
            accounts = {row["provider"]: row for row in tx.rows("accounts")}
        for provider in PROVIDERS:
            spent = sum(entry.cost for entry in self.entries if entry.reservation.provider == provider)
            held = sum(entry.held for entry in self.entries if entry.reservation.provider == provider)
            assert accounts[provider]["spent"] == spent
            if any(part > 0 for part in self.parts):
                assert accounts[provider]["reserved"] >= held
            else:
                assert accounts[provider]["reserved"] == held
        self.sums_agree()

    def sums_agree(self) -> None:
        def of(column: str) -> dict[Any, Any]:
            rows = self.sql(
                f"select provider, {column}, sum(cost)::bigint, "
                "coalesce(sum(reserve) filter (where state = 'reserved'), 0)::bigint "
                f"from budget_entries where {column} is not null group by 1, 2",
            )
            return {row[:2]: row[2:] for row in rows}

        for scope, column in (("tenant", "tenant_id"), ("store", "store_id"), ("job", "job_id")):
            expected = of(column)
            for provider, scope_id, spent, reserved in self.sql(
                "select provider, scope_id, spent, reserved from budget_spenders where scope = %s",
                scope,
            ):
                assert (spent, reserved) == expected.get((provider, scope_id), (0, 0)), (scope, scope_id)
        assert self.sql(
            "select coalesce(sum(cost), 0)::bigint, coalesce(sum(calls), 0)::bigint from budget_usage",
        ) == [(sum(entry.cost for entry in self.entries), sum(entry.state != "reserved" for entry in self.entries))]


def run_machine(database: TestDatabase, parts: tuple[float, ...], examples: int = 50, **more: Any) -> None:
    with database.relay.system() as tx:
        tenants = [create_tenant(tx, name).id for name in ("one", "two")]
    with psycopg.connect(database.admin, autocommit=True) as admin:
        machine: Any = lambda: LedgerMachine(database, admin, tenants, parts)  # noqa: E731
        checks: Any = list(HealthCheck)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=checks, **more
            ),
        )  # fmt: skip


@pytest.mark.parametrize("parts", [(0.0, 0.0), (0.1, 0.3)], ids=["account", "slices"])
def test_no_order_of_events_breaks_the_ledger(database: TestDatabase, parts: tuple[float, ...]) -> None:
    run_machine(database, parts)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("budget_limit", "p_cap - (p_cap + 9) / 10", "p_cap"),
        ("budget_finish", "e.state = 'estimated' and c.state <> 'estimated'", "e.state <> 'released'"),
    ],
    ids=["last-tenth", "settled-twice"],
)
def test_the_machine_sees_a_broken_guarantee(database: TestDatabase, name: str, right: str, wrong: str) -> None:
    """The negative control: without one of the ledger's rules the same machine fails."""
    with psycopg.connect(database.admin, autocommit=True) as admin:
        row = admin.execute("select pg_get_functiondef(%s::regproc)", [name]).fetchone()
        assert row is not None
        assert right in row[0]
        admin.execute(row[0].replace(right, wrong).encode())
    with pytest.raises(AssertionError):
        run_machine(database, (0.0, 0.0), examples=200, derandomize=True, phases=(Phase.generate,))
