"""Calls in flight over several processes: never more than the fleet's cap, and nobody starves (failure-cases.md C9)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from core.budget.lease import ProcessLease
from core.budget.shares import Shares
from core.clock import monotonic
from core.errors import Cancelled, DeadlineExceeded
from core.settings import Settings
from tests.conftest import TestDatabase
from tests.rows import execute

LONG = Settings(lease_seconds=600, renew_seconds=300)


def until(look: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = monotonic() + seconds
    while not look():
        assert monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class Fleet:
    """Some processes' shares of one cap; `rebalance` is called by tests, as the lease's thread would."""

    def __init__(self, database: TestDatabase, caps: dict[str, int]) -> None:
        self.database = database
        self.caps = caps
        self.all: list[Shares] = []
        self.leases: list[ProcessLease] = []
        self.now = self.most = 0
        self.lock = threading.Lock()

    def join(self) -> Shares:
        lease = ProcessLease(self.database.app, LONG)
        lease.renew()
        shares = Shares(self.database.app, lease, self.caps)
        self.all.append(shares)
        self.leases.append(lease)
        return shares

    def call(self, shares: Shares, seconds: float, call_class: str = "read") -> None:
        with shares.slot("local", call_class, monotonic() + 60):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(seconds)
            with self.lock:
                self.now -= 1

    def held(self) -> int:
        ((held,),) = execute(self.database.admin, "select coalesce(sum(share), 0) from inflight_shares")
        return held


@pytest.fixture
def fleet(database: TestDatabase) -> Fleet:
    return Fleet(database, {"read": 4, "flush": 2})


@pytest.fixture
def ticking(fleet: Fleet) -> Iterator[Fleet]:
    """What leases' threads do every two seconds, more often."""
    stopping = threading.Event()

    def tick() -> None:
        while not stopping.wait(0.05):
            for shares in list(fleet.all):
                shares.rebalance()

    thread = threading.Thread(target=tick)
    thread.start()
    yield fleet
    stopping.set()
    thread.join()


def run(*calls: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_sixteen_processes_never_pass_a_cap_of_four_and_all_have_their_turn(ticking: Fleet) -> None:
    processes = [ticking.join() for _ in range(16)]
    done: list[int] = []

    def work(n: int) -> None:
        for _ in range(3):
            ticking.call(processes[n], 0.01)
            done.append(n)

    run(*(lambda n=n: work(n) for n in range(16) for _ in range(2)))
    assert sorted(set(done)) == list(range(16))
    assert len(done) == 96
    assert 1 <= ticking.most <= 4


def test_one_process_alone_may_use_the_whole_cap(fleet: Fleet) -> None:
    shares = fleet.join()
    run(*(lambda: fleet.call(shares, 0.2) for _ in range(8)))
    assert fleet.most == 4


def test_a_share_goes_to_who_needs_it_and_never_twice(fleet: Fleet) -> None:
    first, second = fleet.join(), fleet.join()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(first.slot("local", "read"))
        with pytest.raises(DeadlineExceeded), second.slot("local", "read", monotonic() + 0.3):
            pass
        first.rebalance()
        assert fleet.held() == 4  # all of it is in use: nothing can be given
    first.rebalance()
    run(*(lambda: fleet.call(second, 0.2) for _ in range(4)))
    assert fleet.held() <= 4


def test_classes_and_providers_have_limits_of_their_own(fleet: Fleet) -> None:
    shares = fleet.join()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(shares.slot("local", "read", monotonic() + 5))
        stack.enter_context(shares.slot("local", "flush", monotonic() + 5))
        stack.enter_context(shares.slot("jev", "read", monotonic() + 5))
        assert shares.in_flight("local", "read") == 4
    assert shares.in_flight("local", "read") == 0


def test_the_share_of_a_dead_process_comes_back(fleet: Fleet) -> None:
    dead, other = fleet.join(), fleet.join()
    run(*(lambda: fleet.call(dead, 0.1) for _ in range(4)))
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(dead.slot("local", "read", monotonic() + 5))
        execute(
            fleet.database.admin,
            "update process_leases set lease_until = now() - interval '1 s' where process_id = %s",
            fleet.leases[0].process_id,
        )
        run(*(lambda: fleet.call(other, 0.05) for _ in range(4)))


def test_a_process_whose_lease_was_lost_starts_nothing_with_its_old_share(fleet: Fleet) -> None:
    shares, other = fleet.join(), fleet.join()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(shares.slot("local", "read", monotonic() + 5))
        execute(fleet.database.admin, "delete from process_leases")
        execute(fleet.database.admin, "delete from inflight_shares")
        fleet.leases[1].renew()
        stack.enter_context(other.slot("local", "read", monotonic() + 5))
        shares.rebalance()  # it learns of its loss and renews its lease
        shares.rebalance()
        with pytest.raises(DeadlineExceeded), shares.slot("local", "read", monotonic() + 0.3):
            pass
    with shares.slot("local", "read", monotonic() + 5):
        pass


def test_a_cancelled_caller_stops_waiting(fleet: Fleet) -> None:
    shares = fleet.join()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(shares.slot("local", "read", monotonic() + 5))
        with pytest.raises(Cancelled), shares.slot("local", "read", None, lambda: True):
            pass


def test_a_slot_comes_free_at_once_for_a_caller_of_the_same_process(fleet: Fleet) -> None:
    shares = fleet.join()
    began = monotonic()
    run(*(lambda: fleet.call(shares, 0.02) for _ in range(40)))
    assert fleet.most == 4
    assert monotonic() - began < 3
