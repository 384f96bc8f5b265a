"""Breakers and retry budgets that processes share through Postgres, and that each keeps alone when it is away."""

import threading

import pytest

from core.errors import ModelUnavailable, Unavailable
from core.models.circuits import Circuits
from core.models.shared_circuits import SharedCircuits
from core.store.database import Database
from tests.conftest import TestDatabase
from tests.fakes.models import Clock
from tests.rows import execute

NAME = "jev"


@pytest.fixture
def processes(database: TestDatabase) -> tuple[Circuits, Circuits]:
    return (
        Circuits(Clock().timing, SharedCircuits(database.app), "a"),
        Circuits(Clock().timing, SharedCircuits(database.app), "b"),
    )


def later(database: TestDatabase, seconds: float) -> None:
    """As if it had been that long ago, by the database's clock."""
    execute(
        database.admin,
        "update breakers set open_until = open_until - make_interval(secs => %s),"
        " trial_until = trial_until - make_interval(secs => %s)",
        seconds, seconds,
    )  # fmt: skip


def test_failures_of_all_processes_add_up(processes: tuple[Circuits, Circuits]) -> None:
    first, second = processes
    for _ in range(5):
        first.failed(NAME)
        second.failed(NAME)
    with pytest.raises(ModelUnavailable, match="10 times in a row: calls fail fast") as refused:
        second.admit(NAME)
    assert 19 <= (refused.value.retry_after or 0) <= 20
    first.refresh()
    with pytest.raises(ModelUnavailable):
        first.check(NAME)
    assert first.open() == [NAME]
    first.check("deepseek")


def test_an_endpoint_that_nobody_calls_any_more_is_forgotten(
    database: TestDatabase, processes: tuple[Circuits, Circuits]
) -> None:
    """Only a call closes a circuit: one whose profile is gone would stay open, and its alert with it, for ever."""
    first, second = processes
    for _ in range(10):
        first.failed(NAME)
    second.refresh()
    assert second.open() == [NAME]
    for seconds, still in ((3500.0, [NAME]), (200.0, [])):
        later(database, seconds)
        with database.relay.direct() as tx:
            tx.run("prune_breakers")
        second.refresh()
        assert second.open() == still
    assert not second.admit(NAME)


def test_an_answer_anywhere_starts_the_count_again(processes: tuple[Circuits, Circuits]) -> None:
    first, second = processes
    for _ in range(9):
        first.failed(NAME)
    second.refresh()
    second.answered(NAME, trial=False)
    first.failed(NAME)
    assert not first.admit(NAME)
    first.refresh()
    assert first.open() == []


def test_an_answer_from_before_the_others_failures_leaves_the_way_closed(processes: tuple[Circuits, Circuits]) -> None:
    first, second = processes
    second.failed(NAME)
    for _ in range(9):
        first.failed(NAME)
    second.answered(NAME, trial=False)  # sent before; it has not heard yet that the circuit is open
    for process in processes:
        with pytest.raises(ModelUnavailable):
            process.check(NAME)
        process.refresh()
        assert process.open() == [NAME]


def test_one_process_tries_and_its_success_opens_the_way_for_all(
    database: TestDatabase, processes: tuple[Circuits, Circuits]
) -> None:
    first, second = processes
    for _ in range(10):
        first.failed(NAME)
    later(database, 20)
    first.refresh()
    second.refresh()
    assert first.admit(NAME)  # the trial
    with pytest.raises(ModelUnavailable):
        second.admit(NAME)
    second.refresh()
    with pytest.raises(ModelUnavailable):
        second.check(NAME)
    first.answered(NAME, trial=True)
    second.refresh()
    assert not first.admit(NAME)
    assert not second.admit(NAME)


def test_a_trial_that_fails_closes_the_way_for_twenty_seconds_more(
    database: TestDatabase, processes: tuple[Circuits, Circuits]
) -> None:
    first, second = processes
    for _ in range(10):
        first.failed(NAME)
    later(database, 20)
    second.refresh()
    assert second.admit(NAME)
    second.failed(NAME)
    later(database, 19)
    for process in processes:
        process.refresh()
        with pytest.raises(ModelUnavailable):
            process.admit(NAME)
    later(database, 1)
    second.refresh()
    assert second.admit(NAME)


def test_a_trial_that_never_ended_makes_way_after_a_time(
    database: TestDatabase, processes: tuple[Circuits, Circuits]
) -> None:
    first, second = processes
    for _ in range(10):
        first.failed(NAME)
    later(database, 20)
    first.refresh()
    assert first.admit(NAME)  # and its process is killed
    later(database, 20)
    second.refresh()
    assert second.admit(NAME)


def test_the_retry_budget_is_exact_over_processes(database: TestDatabase) -> None:
    shared = SharedCircuits(database.app)
    shared.add_calls({NAME: 100, "deepseek": 1_000})
    taken: list[bool] = []
    threads = [
        threading.Thread(target=lambda: taken.extend([shared.take_retry(NAME) for _ in range(10)])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A fifth of a hundred calls; and five of a further second, should the eighty have taken longer than one.
    assert 20 <= taken.count(True) <= 25
    assert shared.take_retry("openai")


def test_calls_of_a_process_are_known_to_others(processes: tuple[Circuits, Circuits]) -> None:
    first, second = processes
    for _ in range(50):
        first.called(NAME)
    first.refresh()
    assert [second.take_retry(NAME) for _ in range(11)] == [True] * 10 + [False]


def test_without_postgres_each_process_goes_by_itself(database: TestDatabase) -> None:
    clock = Clock()
    with Database(database.dsn("app"), name="test", size=1) as own:
        circuits = Circuits(clock.timing, SharedCircuits(own))
        circuits.failed(NAME)
    with pytest.raises(Unavailable):  # the pool is closed: as if Postgres were away
        SharedCircuits(own).breakers()
    for _ in range(9):
        circuits.failed(NAME)
    with pytest.raises(ModelUnavailable):
        circuits.admit(NAME)
    clock.skip(20)
    circuits.refresh()
    assert circuits.admit(NAME)
    circuits.answered(NAME, trial=True)
    assert not circuits.admit(NAME)
    assert [circuits.take_retry(NAME) for _ in range(6)] == [True] * 5 + [False]


def test_an_answer_is_not_lost_for_what_goes_wrong_in_postgres(database: TestDatabase) -> None:
    circuits = Circuits(Clock().timing, SharedCircuits(database.app))
    execute(database.admin, "alter table breakers rename to gone")
    circuits.failed(NAME)
    circuits.answered(NAME, trial=False)
    assert not circuits.admit(NAME)
    execute(database.admin, "alter table gone rename to breakers")


def test_old_counts_go(database: TestDatabase) -> None:
    shared = SharedCircuits(database.app)
    shared.add_calls({NAME: 1})
    execute(database.admin, "update circuit_counts set moment = moment - 1300")
    shared.add_calls({NAME: 7})
    assert execute(database.admin, "select calls from circuit_counts") == [(7,)]
