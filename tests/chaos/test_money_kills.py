"""Processes that die or pause between reserving and settling: every attempt stands once, and no cap is passed."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest

from core.settings import child_environment
from tests.conftest import TestDatabase
from tests.fakes.fleet import Fleet, Process, fleet, until
from tests.fakes.payer import COST, ESTIMATE
from tests.rows import execute

pytestmark = pytest.mark.chaos
LEASE = {"lease_seconds": "1", "renew_seconds": "0.3"}


@pytest.fixture(params=["0", "0.001"], ids=["account", "slices"])
def part(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def parts(database: TestDatabase, redis_url: str, tenant: UUID, part: str) -> Iterator[Fleet]:
    with fleet(database, redis_url, tenant, budget_slice=part, **LEASE) as found:
        found.relay()
        yield found


def payer(parts: Fleet, stack: ExitStack, count: int, faults: str = "", part: str = "0") -> Process:
    environment = child_environment(
        database_url=parts.database.dsn("app"), faults=faults, budget_slice=part, log="text", **LEASE
    )
    process = Process(["-m", "tests.fakes.payer", str(parts.tenant), str(count)], environment)
    stack.callback(process.end)
    return process


def told(process: Process) -> dict[UUID, str]:
    """What a dead process had said last about each entry."""
    found: dict[UUID, str] = {}
    while line := process.read():
        entry, word = line.split()
        found[UUID(entry)] = word
    return found


def entries(database: TestDatabase) -> dict[UUID, tuple[Any, ...]]:
    rows = execute(database.admin, "select entry_id, state, cost from budget_entries")
    return {row[0]: row[1:] for row in rows}


def account(database: TestDatabase) -> tuple[int, int, int]:
    (row,) = execute(database.admin, "select spent, reserved, leased from budget_accounts where provider = 'jev'")
    return row


def settled_by_the_relay(database: TestDatabase) -> bool:
    found = execute(
        database.admin,
        "select (select count(*) from budget_entries where state = 'reserved') + (select count(*) from budget_slices)",
    )
    return found == [(0,)]


@pytest.mark.parametrize(
    ("fault", "calls"),
    [("budget.reserve", 0), ("budget.reserved", 1), ("budget.settle", 1), ("budget.settled", 1)],
)
def test_a_process_killed_around_a_call_leaves_it_once_in_the_ledger(
    parts: Fleet, database: TestDatabase, part: str, fault: str, calls: int
) -> None:
    """Killed before it reserves, before it asks, after the answer, after settling: settled by the relay within lease and
    sweep, at the input estimate unless the settlement was written."""
    with ExitStack() as stack:
        process = payer(parts, stack, 1, f"{fault}=kill", part)
        assert process.died() == -9
        said = told(process)
    until(lambda: settled_by_the_relay(database), 10)
    found = entries(database)
    assert len(found) == calls
    expected = ("settled", COST) if fault == "budget.settled" else ("estimated", ESTIMATE.input)
    assert set(found.values()) == ({expected} if calls else set())
    assert set(said) <= set(found)
    assert account(database) == (sum(cost for _, cost in found.values()), 0, 0)


def test_random_kills_lose_no_money_and_invent_none(parts: Fleet, database: TestDatabase, part: str) -> None:
    faults = "budget.reserved=kill:0.05;budget.settle=kill:0.05;budget.settled=kill:0.05"
    said: dict[UUID, str] = {}
    with ExitStack() as stack:
        for processes in ([payer(parts, stack, 60, faults, part) for _ in range(3)] for _ in range(3)):
            for process in processes:
                # The one in a thousand that survives all its calls waits for a word.
                if process.child.poll() is None:
                    process.say("")
                process.died(30)
                said |= told(process)
    until(lambda: settled_by_the_relay(database), 15)
    found = entries(database)
    assert set(said) <= set(found)
    for entry, word in said.items():
        assert word != "settled" or found[entry] == ("settled", COST)
        assert word != "reserved" or found[entry] == ("estimated", ESTIMATE.input)
    assert {value for value in found.values()} <= {("settled", COST), ("estimated", ESTIMATE.input)}
    assert account(database) == (sum(cost for _, cost in found.values()), 0, 0)


def test_a_process_paused_past_its_lease_corrects_what_the_relay_settled(
    parts: Fleet, database: TestDatabase, part: str
) -> None:
    """SIGSTOP in mid-call: estimated by the relay; when it goes on, the meter's price takes the estimate's place."""
    with ExitStack() as stack:
        process = payer(parts, stack, 0, "", part)
        entry = UUID(process.read().split()[0])
        assert execute(database.admin, "select share > 0 from inflight_shares") == [(True,)]
        process.pause()
        until(lambda: entries(database)[entry] == ("estimated", ESTIMATE.input), 10)
        until(lambda: execute(database.admin, "select count(*) from inflight_shares") == [(0,)], 10)
        process.go_on()
        process.say("")
        process.read(f"{entry} settled")
        assert entries(database)[entry] == ("settled", COST)
        assert process.died() == 0
    until(lambda: account(database) == (COST, 0, 0), 10)


def test_a_process_that_stops_in_order_leaves_nothing_behind(parts: Fleet, database: TestDatabase, part: str) -> None:
    with ExitStack() as stack:
        process = payer(parts, stack, 5, "", part)
        while not process.read().endswith("ready"):
            pass
        process.say("")
        assert process.died() == 0
    assert account(database) == (6 * COST, 0, 0)
    for table in ("process_leases", "budget_slices", "inflight_shares"):
        assert execute(database.admin, f"select count(*) from {table}") == [(0,)], table
