"""The ledger on real Postgres: caps that hold, ends that may be repeated, what a dead process leaves (architecture.md §5)."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from core.budget.caps import set_provider_caps, set_store_caps, set_tenant_caps, settle_dead
from core.budget.lease import ProcessLease
from core.budget.ledger import Ledger
from core.budget.model import CallClass, Estimate, Spender
from core.clock import monotonic
from core.errors import BudgetSpent, MunimentError, Unavailable
from core.ids import uuid7
from core.settings import Settings
from core.store.database import Database
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.fakes.fleet import until
from tests.rows import execute

TEN = Estimate(reserve=10, input=3)
SETTINGS = Settings(lease_seconds=30)


@pytest.fixture(params=[0.0, 0.2], ids=["account", "slices"])
def part(request: pytest.FixtureRequest) -> float:
    """Whether money comes from the account itself or from leased slices of it."""
    return request.param


@pytest.fixture
def lease(database: TestDatabase) -> ProcessLease:
    made = ProcessLease(database.app, SETTINGS)
    made.renew()
    return made


@pytest.fixture
def ledger(database: TestDatabase, lease: ProcessLease, part: float) -> Ledger:
    return Ledger(database.app, lease, SETTINGS.model_copy(update={"budget_slice": part}))


@pytest.fixture
def store() -> UUID:
    return uuid7()


def spender(
    tenant: UUID, store: UUID | None = None, job: UUID | None = None, call_class: CallClass = "read"
) -> Spender:
    return Spender(tenant, store, job, "judge", call_class)


def set_caps(database: TestDatabase, **caps: int) -> None:
    with database.relay.system() as tx:
        set_provider_caps(tx, caps, {})


def account(database: TestDatabase, provider: str = "jev") -> dict[str, Any]:
    with database.relay.system() as tx:
        return next(row for row in tx.rows("accounts") if row["provider"] == provider)


def entry(database: TestDatabase, entry_id: UUID) -> tuple[Any, ...]:
    """(state, outcome, cost, input tokens, output tokens)"""
    ((*found,),) = execute(
        database.admin,
        "select state, outcome, cost, input_tokens, output_tokens from budget_entries where entry_id = %s",
        entry_id,
    )
    return tuple(found)


def test_a_call_is_reserved_and_settled_at_the_meters_price(
    database: TestDatabase, ledger: Ledger, tenant: UUID, part: float
) -> None:
    set_caps(database, jev=1_000)
    reservation = ledger.reserve("jev", TEN, spender(tenant))
    assert entry(database, reservation.entry_id)[0] == "reserved"
    assert account(database)["reserved"] == (10 if part == 0 else 200)  # a slice counts as reserved
    ledger.settle(reservation, 7, 700, 30)
    assert entry(database, reservation.entry_id) == ("settled", "ok", 7, 700, 30)
    assert account(database)["spent"] == 7
    ledger.close()
    assert account(database) | {"cap": 0} == {
        "provider": "jev", "currency": "USD", "cap": 0, "job_cap": None, "spent": 7, "reserved": 0,
    }  # fmt: skip


def test_every_end_may_be_repeated_and_the_first_stays(database: TestDatabase, ledger: Ledger, tenant: UUID) -> None:
    set_caps(database, jev=1_000)
    settled, released, estimated = (ledger.reserve("jev", TEN, spender(tenant)) for _ in range(3))
    for _ in range(2):
        ledger.settle(settled, 7, 1, 1)
        ledger.release(released)
        ledger.settle_at_estimate(estimated, "timeout")
        assert account(database)["spent"] == 7 + 0 + 3
    ledger.release(settled)
    ledger.settle(released, 9, 1, 1)
    assert entry(database, settled.entry_id)[:3] == ("settled", "ok", 7)
    assert entry(database, released.entry_id)[:3] == ("released", "refused", 0)
    assert entry(database, estimated.entry_id)[:3] == ("estimated", "timeout", 3)
    assert account(database)["spent"] == 10


def test_the_meters_word_replaces_an_estimate(database: TestDatabase, ledger: Ledger, tenant: UUID) -> None:
    """A process that was only paused comes back after the relay has settled for it."""
    set_caps(database, jev=1_000)
    first, second = (ledger.reserve("jev", TEN, spender(tenant)) for _ in range(2))
    for reservation in (first, second):
        ledger.settle_at_estimate(reservation, "owner-lost")
    ledger.settle(first, 8, 100, 5)
    ledger.release(second)
    assert entry(database, first.entry_id) == ("settled", "ok", 8, 100, 5)
    assert entry(database, second.entry_id)[:3] == ("released", "refused", 0)
    assert account(database)["spent"] == 8
    (used,) = execute(database.admin, "select calls, failed, cost, input_tokens from budget_usage")
    assert used == (2, 1, 8, 100)


def test_a_call_may_cost_more_than_was_reserved(database: TestDatabase, ledger: Ledger, tenant: UUID) -> None:
    set_caps(database, openai=15)
    reservation = ledger.reserve("openai", TEN, spender(tenant))
    ledger.settle(reservation, 40, 1, 1)
    assert account(database, "openai")["spent"] == 40
    with pytest.raises(BudgetSpent):
        ledger.reserve("openai", TEN, spender(tenant))


def test_the_last_tenth_is_left_to_reads(database: TestDatabase, ledger: Ledger, tenant: UUID) -> None:
    set_caps(database, jev=100)
    for call_class in ("consolidation", "flush"):
        other = spender(tenant, call_class=call_class)
        held = [ledger.reserve("jev", TEN, other) for _ in range(9)]
        with pytest.raises(BudgetSpent, match="kept for reads") as refused:
            ledger.reserve("jev", TEN, other)
        assert (refused.value.cap, refused.value.reads_only) == ("provider", True)
        held.append(ledger.reserve("jev", TEN, spender(tenant)))
        with pytest.raises(BudgetSpent, match="used up") as refused:
            ledger.reserve("jev", TEN, spender(tenant))
        assert not refused.value.reads_only
        for reservation in held:
            ledger.release(reservation)
        ledger.close()


def test_the_narrowest_cap_is_named_and_only_lowers(
    database: TestDatabase, ledger: Ledger, tenant: UUID, store: UUID
) -> None:
    job, other_job, other_store = uuid7(), uuid7(), uuid7()
    with database.relay.system() as tx:
        set_provider_caps(tx, {"jev": 60}, {})
        set_tenant_caps(tx, tenant, {"jev": 50}, {"jev": 20})
    with database.app.tenant(tenant) as tx:
        set_store_caps(tx, tenant, store, {"jev": 30})
        set_store_caps(tx, tenant, other_store, {"jev": 1_000})

    def until_refused(who: Spender) -> tuple[int, str]:
        count = 0
        while True:
            try:
                ledger.reserve("jev", TEN, who)
            except BudgetSpent as error:
                return count, error.cap
            count += 1

    assert until_refused(spender(tenant, store, job)) == (2, "job")
    assert until_refused(spender(tenant, store, other_job)) == (1, "store")
    assert until_refused(spender(tenant, other_store)) == (2, "tenant")
    with database.relay.system() as tx:
        set_tenant_caps(tx, tenant, {"jev": None}, {"jev": None})
    assert until_refused(spender(tenant, other_store)) == (1, "provider")


def test_a_cap_set_later_counts_what_was_spent_before(
    database: TestDatabase, ledger: Ledger, tenant: UUID, store: UUID
) -> None:
    job = uuid7()
    reservation = ledger.reserve("jev", TEN, spender(tenant, store, job))
    ledger.settle(reservation, 9, 1, 1)
    with database.relay.system() as tx:
        set_tenant_caps(tx, tenant, {}, {"jev": 18})
    with pytest.raises(BudgetSpent) as refused:
        ledger.reserve("jev", TEN, spender(tenant, store, job))
    assert refused.value.cap == "job"
    with database.relay.system() as tx:
        set_tenant_caps(tx, tenant, {"jev": 18}, {"jev": None})
    with pytest.raises(BudgetSpent) as refused:
        ledger.reserve("jev", TEN, spender(tenant))
    assert refused.value.cap == "tenant"


def test_configured_caps_are_written_over_stored_ones_and_what_was_spent_is_kept(
    database: TestDatabase, lease: ProcessLease, tenant: UUID
) -> None:
    set_caps(database, jev=1_000)
    first = Ledger(database.app, lease, SETTINGS)
    first.settle(first.reserve("jev", TEN, spender(tenant)), 9, 1, 1)
    second = Ledger(database.app, lease, SETTINGS.model_copy(update={"budgets": {"jev": 18}}))
    with pytest.raises(BudgetSpent):
        second.reserve("jev", TEN, spender(tenant))
    assert (account(database)["cap"], account(database)["spent"]) == (18, 9)


def test_two_hundred_at_once_never_pass_a_cap_of_ten_calls(
    database: TestDatabase, ledger: Ledger, tenant: UUID
) -> None:
    """B5: checked when it is reserved, not when it is charged."""
    set_caps(database, jev=100)
    outcomes: list[str] = []

    def call() -> None:
        try:
            reservation = ledger.reserve("jev", TEN, spender(tenant))
        except BudgetSpent:
            outcomes.append("spent")
        else:
            ledger.settle(reservation, 10, 1, 1)
            outcomes.append("paid")

    threads = [threading.Thread(target=call) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (outcomes.count("paid"), outcomes.count("spent")) == (10, 190)
    assert account(database)["spent"] == 100


def test_what_a_dead_process_left_is_settled_at_its_input_estimates(
    database: TestDatabase, ledger: Ledger, lease: ProcessLease, tenant: UUID, part: float
) -> None:
    set_caps(database, jev=1_000, openai=1_000)
    lost = [ledger.reserve(name, TEN, spender(tenant)) for name in ("jev", "openai", "jev")]
    ledger.settle(ledger.reserve("jev", TEN, spender(tenant)), 5, 1, 1)
    with database.relay.direct() as tx:
        assert settle_dead(tx, 100) == []  # its owner lives
    execute(database.admin, "update process_leases set lease_until = now() - interval '1 s'")
    settled: list[UUID] = []
    with database.relay.direct() as tx:
        while rows := settle_dead(tx, 1):
            settled += [row["entry_id"] for row in rows]
    assert sorted(settled) == sorted(reservation.entry_id for reservation in lost)
    for reservation in lost:
        assert entry(database, reservation.entry_id)[:3] == ("estimated", "owner-lost", 3)
    assert (account(database)["spent"], account(database)["reserved"]) == (11, 0)
    assert execute(database.admin, "select count(*) from budget_slices") == [(0,)]


def test_a_process_that_was_away_renews_its_lease_and_goes_on(
    database: TestDatabase, ledger: Ledger, lease: ProcessLease, tenant: UUID
) -> None:
    reservation = ledger.reserve("jev", TEN, spender(tenant))
    execute(database.admin, "update process_leases set lease_until = now() - interval '1 s'")
    with database.relay.direct() as tx:
        while settle_dead(tx, 100):
            pass
    ledger.settle(reservation, 4, 1, 1)  # the truth comes late
    assert entry(database, reservation.entry_id)[:3] == ("settled", "ok", 4)
    assert account(database)["spent"] == 4
    again = ledger.reserve("jev", TEN, spender(tenant))
    with database.relay.direct() as tx:
        assert settle_dead(tx, 100) == []
    ledger.release(again)


def test_a_process_paused_in_mid_call_takes_no_cap_beyond_itself(
    database: TestDatabase, ledger: Ledger, lease: ProcessLease, tenant: UUID
) -> None:
    """Its replies may still be on the way when its lease has run out: nobody else gets that money until they cannot be."""
    set_caps(database, jev=100)
    other_lease = ProcessLease(database.app, SETTINGS)
    other_lease.renew()
    other = Ledger(database.app, other_lease, SETTINGS)

    def used() -> int:
        row = account(database)
        return row["spent"] + row["reserved"]

    paused = [ledger.reserve("jev", TEN, spender(tenant), reply_seconds=120) for _ in range(10)]
    execute(
        database.admin,
        "update process_leases set lease_until = now() - interval '1 s' where process_id = %s",
        lease.process_id,
    )
    with database.relay.direct() as tx:
        assert settle_dead(tx, 200) == []
    with pytest.raises(BudgetSpent):
        other.reserve("jev", TEN, spender(tenant))
    lease.renew()
    for reservation in paused:
        ledger.settle(reservation, 9, 1, 1)
        assert used() <= 100
    assert account(database)["spent"] == 90
    ledger.close()

    left = other.reserve("jev", TEN, spender(tenant), reply_seconds=120)
    execute(database.admin, "update process_leases set lease_until = now() - interval '1 s'")
    execute(database.admin, "update budget_entries set reply_until = now() - interval '1 s'")
    with database.relay.direct() as tx:
        assert [row["entry_id"] for row in settle_dead(tx, 200)] == [left.entry_id]


def test_an_owner_that_comes_back_while_the_relay_settles_for_it_is_no_error(
    database: TestDatabase, ledger: Ledger, tenant: UUID
) -> None:
    for _ in range(100):
        ledger.reserve("jev", Estimate(1, 1), spender(tenant))
    ended = threading.Event()

    def come_and_go() -> None:
        with psycopg.connect(database.admin, autocommit=True) as connection:
            while not ended.is_set():
                for span in ("-1 s", "60 s"):
                    connection.execute("update process_leases set lease_until = now() + %s::interval", [span])

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        deadline = monotonic() + 4
        while monotonic() < deadline:
            with database.relay.direct() as tx:
                settle_dead(tx, 1)
    finally:
        ended.set()
        thread.join(10)
    assert account(database)["spent"] + account(database)["reserved"] >= 100


def test_slow_work_of_a_process_costs_it_no_lease(database: TestDatabase) -> None:
    lease = ProcessLease(database.app, Settings(lease_seconds=30, renew_seconds=0.05))
    working, go_on = threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        go_on.wait(20)

    lease.every(0.01, work)
    lease.start()
    try:
        assert working.wait(10)
        execute(database.admin, "update process_leases set lease_until = now() - interval '1 s'")
        until(lambda: execute(database.admin, "select lease_until > now() from process_leases") == [(True,)], 5)
    finally:
        go_on.set()
        lease.stop()


class Unreachable(Database):
    """The test's pool, but for statements that fail while `down`; `after` it has done them."""

    down = False
    after = False

    @classmethod
    def of(cls, database: TestDatabase) -> "Unreachable":
        return cls(database.dsn("app"), name="test-unreachable", size=4)

    def direct(self) -> Any:
        return _Falling(self, super().direct())


class _Falling:
    def __init__(self, db: Unreachable, inner: Any) -> None:
        self._db, self._inner = db, inner

    def __enter__(self) -> Any:
        if self._db.down and not self._db.after:
            raise Unavailable("down")
        return self._inner.__enter__()

    def __exit__(self, *error: Any) -> Any:
        done = self._inner.__exit__(*error)
        if self._db.down:
            raise Unavailable("the answer was lost")
        return done


@pytest.fixture
def shaky(database: TestDatabase) -> Iterator[Unreachable]:
    db = Unreachable.of(database)
    with db:
        yield db


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_end_that_cannot_be_written_is_written_once_postgres_is_back(
    database: TestDatabase, shaky: Unreachable, tenant: UUID, after: bool
) -> None:
    lease = ProcessLease(shaky, Settings(lease_seconds=30, renew_seconds=0.1))
    ledger = Ledger(shaky, lease, SETTINGS)
    lease.renew()
    reservation = ledger.reserve("jev", TEN, spender(tenant))
    shaky.down, shaky.after = True, after
    ledger.settle(reservation, 7, 1, 1)  # raises nothing
    with pytest.raises(Unavailable):
        ledger.reserve("jev", TEN, spender(tenant))
    assert ledger.owed() == 2
    shaky.down = False
    ledger.close()
    assert entry(database, reservation.entry_id)[:3] == ("settled", "ok", 7)
    assert (account(database)["spent"], account(database)["reserved"]) == (7, 0)


def test_an_end_that_postgres_refuses_keeps_no_other_from_being_written(
    database: TestDatabase, ledger: Ledger, tenant: UUID
) -> None:
    """Ends that come at once share a statement, and so does what is owed: other tenants' ends are among them."""
    with database.relay.system() as tx:
        other = create_tenant(tx, f"other-{uuid7().hex}").id
    held = [ledger.reserve("deepseek", TEN, spender(who)) for who in (tenant, tenant, other, other)]
    ready, raised = threading.Barrier(len(held)), list[Exception]()

    def settle(number: int) -> None:
        ready.wait(10)
        try:
            ledger.settle(held[number], 7 if number else 2**63, 1, 1)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=settle, args=(number,)) for number in range(len(held))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    ledger.repay()
    assert raised == []
    assert [entry(database, each.entry_id)[0] for each in held] == ["reserved", "settled", "settled", "settled"]
    assert ledger.owed() == 1
    ledger.close()


def test_unpaid_and_replayed_calls_are_counted(
    database: TestDatabase, ledger: Ledger, tenant: UUID, store: UUID
) -> None:
    ledger.count("local", spender(tenant, store), 50, 5)
    ledger.count("jev", spender(tenant, store), 70, 7, "cached")
    ledger.count("local", spender(tenant, store), 0, 0, "timeout")
    ledger.close()
    rows = execute(
        database.admin,
        "select provider, calls, failed, cached, input_tokens, output_tokens, cost from budget_usage order by 1",
    )
    assert rows == [("jev", 1, 0, 1, 70, 7, 0), ("local", 2, 1, 0, 50, 5, 0)]
    assert account(database)["spent"] == 0


def test_a_failed_call_with_a_meter_is_paid_and_counted(database: TestDatabase, ledger: Ledger, tenant: UUID) -> None:
    """S12: a reply that nobody can read was billed all the same."""
    ledger.settle(ledger.reserve("deepseek", TEN, spender(tenant)), 6, 60, 6, "unparsable")
    assert execute(database.admin, "select calls, failed, cost, input_tokens, output_tokens from budget_usage") == [
        (1, 1, 6, 60, 6)
    ]


def test_a_provider_without_an_account_is_no_one_to_pay(ledger: Ledger, tenant: UUID) -> None:
    with pytest.raises(ValueError, match="no account"):
        ledger.reserve("local", TEN, spender(tenant))


def test_a_statement_that_fails_is_everyones_error_and_not_one_exception_for_all(
    database: TestDatabase, shaky: Unreachable, tenant: UUID
) -> None:
    lease = ProcessLease(shaky, SETTINGS)
    ledger = Ledger(shaky, lease, SETTINGS)
    lease.renew()
    shaky.down = True
    errors: list[MunimentError] = []

    def call() -> None:
        try:
            ledger.reserve("jev", TEN, spender(tenant))
        except MunimentError as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(error) for error in errors}) == 16
    assert all(isinstance(error, Unavailable) for error in errors)
