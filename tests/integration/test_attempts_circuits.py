"""Breaker and retry budget as calls meet them (seed: "A circuit breaker per provider…"; memory-agent.md §10.1)."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from core.models.model import ModelUnavailable
from tests.fakes.attempting import ask, gateway, outcome, profile
from tests.fakes.fleet import until
from tests.fakes.models import Alone
from tests.fakes.provider import Provider, Step, provider

AWAY = {
    "500": Step(status=500),
    "503": Step(status=503),
    "529": Step(status=529),
    "reset": Step(reset="before"),
    "cut": Step(cut=True),
}
ANSWERED = {
    "ok": Step(),
    "429": Step(status=429),
    "invalid-reply": Step(body="?"),
    "400": Step(status=400),
    "401": Step(status=401),
    "408": Step(status=408),
}
"""Whatever else: no availability failure, and the count starts again."""


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider() as running:
        yield running


def once(opened: Alone, fake: Provider, step: Step, kind: str = "jev") -> str:
    """One attempt that meets `step`, if it is sent at all. Consolidation: no patience."""
    fake.always(step)
    return outcome(lambda: ask(opened, profile(fake, kind, maxAttempts=1), "consolidation"))


@pytest.mark.parametrize("step", AWAY.values(), ids=AWAY)
def test_ten_availability_failures_in_a_row_and_calls_fail_fast(fake: Provider, step: Step) -> None:
    with gateway() as opened:
        for _ in range(10):
            assert once(opened, fake, step) == "ModelUnavailable"
        assert len(fake.log) == 10
        with pytest.raises(ModelUnavailable, match="fail fast") as failed:
            ask(opened, profile(fake))
        assert failed.value.retry_after == 20
        opened.clock.skip(19.5)
        assert once(opened, fake, Step()) == "ModelUnavailable"
        assert len(fake.log) == 10, "nothing was sent for 20 s"
        opened.clock.skip(0.6)
        assert once(opened, fake, Step()) == "ok"
        assert once(opened, fake, Step()) == "ok"
    assert len(fake.log) == 12


def test_connections_that_are_refused_count_too(fake: Provider) -> None:
    fake.refuse()
    with gateway() as opened:
        for _ in range(10):
            once(opened, fake, Step())
        fake.listen()
        assert once(opened, fake, Step()) == "ModelUnavailable"
    assert fake.log == []


def test_attempts_that_time_out_count_too(fake: Provider) -> None:
    fake.always(Step(delay=600))
    with gateway() as opened, ThreadPoolExecutor(10) as pool:
        called = [pool.submit(ask, opened, profile(fake, maxAttempts=1)) for _ in range(10)]
        until(lambda: len(fake.log) == 10, 5)
        opened.clock.skip(20)
        assert all(isinstance(each.exception(5), ModelUnavailable) for each in called)
        assert once(opened, fake, Step()) == "ModelUnavailable"
        assert len(fake.log) == 10
        fake.refuse()


@pytest.mark.parametrize("step", ANSWERED.values(), ids=ANSWERED)
def test_anything_else_starts_the_count_again(fake: Provider, step: Step) -> None:
    with gateway() as opened:
        for _ in range(2):
            for _ in range(9):
                once(opened, fake, Step(status=503))
            once(opened, fake, step)
        assert len(fake.log) == 20
        assert once(opened, fake, Step()) == "ok"


def test_a_call_stops_in_the_middle_of_its_attempts(fake: Provider) -> None:
    fake.always(Step(status=503))
    with gateway() as opened:
        for _ in range(4):
            outcome(lambda: ask(opened, profile(fake)))
    assert len(fake.log) == 10, "4 + 4 + 2"


def test_one_trial_in_twenty_seconds_and_its_failure_begins_another_twenty(fake: Provider) -> None:
    with gateway() as opened:
        for _ in range(10):
            once(opened, fake, Step(status=503))
        for trial in range(1, 4):
            opened.clock.skip(20.1)
            assert once(opened, fake, Step(status=503)) == "ModelUnavailable"
            assert len(fake.log) == 10 + trial
            for _ in range(3):
                once(opened, fake, Step())
            assert len(fake.log) == 10 + trial, "only one tried"


def test_only_one_of_many_tries(fake: Provider) -> None:
    with gateway() as opened, ThreadPoolExecutor(16) as pool:
        for _ in range(10):
            once(opened, fake, Step(status=503))
        opened.clock.skip(20.1)
        fake.always(Step(delay=0.3))
        ended = [pool.submit(outcome, lambda: ask(opened, profile(fake, maxAttempts=1))) for _ in range(16)]
        assert sorted(each.result(5) for each in ended) == ["ModelUnavailable"] * 15 + ["ok"]
    assert len(fake.log) == 11


def test_another_provider_goes_on(fake: Provider) -> None:
    with gateway() as opened:
        for _ in range(10):
            once(opened, fake, Step(status=503))
        assert once(opened, fake, Step(), "deepseek") == "ok"
        assert opened.circuits.open() == [profile(fake).circuit]


THROTTLED = Step(status=429, headers={"Retry-After": "1"})

# The retry budget -----------------------------------------------------------------------------------------------------------


def storm(opened: Alone, fake: Provider, calls: int, step: Step = THROTTLED) -> int:
    """So many calls fail once, all together, and want to try again at the same moment; how many do."""
    fake.script([step] * calls)
    together, clock = threading.Barrier(calls), opened.clock
    clock.asleep = lambda _: (together.wait(10), None)[1]
    clock.skip = lambda seconds: None  # the wait of one is the wait of all
    before = len(fake.log)
    with ThreadPoolExecutor(calls) as pool:
        ended = [pool.submit(outcome, lambda: ask(opened, profile(fake))) for _ in range(calls)]
        good = sum(each.result(10) == "ok" for each in ended)
    clock.asleep = lambda _: None
    del clock.skip
    assert len(fake.log) - before == calls + good, "who may not try again is not sent"
    return good


def test_five_retries_may_always_start_within_a_second_and_no_more(fake: Provider) -> None:
    with gateway() as opened:
        assert storm(opened, fake, 20) == 5


def test_a_fifth_of_the_calls_of_a_minute_may_be_retries(fake: Provider) -> None:
    with gateway() as opened:
        for _ in range(40):
            assert once(opened, fake, Step()) == "ok"
        fake.always(Step())
        assert storm(opened, fake, 20) == 12, "of 60 calls"
        opened.clock.skip(61)
        assert storm(opened, fake, 20) == 5, "the minute is over"


def test_a_retry_is_taken_when_it_starts_after_its_wait(fake: Provider) -> None:
    """While a call waits, its retry is nobody's yet: five others still start within that second."""
    with gateway() as opened:
        fake.script([Step(status=503, headers={"Retry-After": "2"})])
        others: list[int] = []

        def asleep(_: float) -> None:
            opened.clock.asleep = lambda _: None
            others.append(storm(opened, fake, 20))

        opened.clock.asleep = asleep
        assert outcome(lambda: ask(opened, profile(fake))) == "ok", "after its wait it is another second"
        assert others == [5]


class Gate:
    """Places in flight for the first attempt of each thread; its next one waits until `opened`."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.waiting = 0
        self._seen: set[int] = set()

    def slot(self, provider: str, call_class: str, deadline: float | None, cancelled: object) -> "Gate":
        del provider, call_class, deadline, cancelled
        return self

    def __enter__(self) -> None:
        me = threading.get_ident()
        if me in self._seen:
            self.waiting += 1
            assert self.opened.wait(20)
        self._seen.add(me)

    def __exit__(self, *_: object) -> None:
        pass


def test_retries_that_waited_for_a_place_together_do_not_start_together(fake: Provider) -> None:
    """All places are taken for a while, and each call's wait is over in another second."""
    calls, gate = 20, Gate()
    fake.script([THROTTLED] * calls)
    with gateway(slots=gate) as opened, ThreadPoolExecutor(calls) as pool:
        ended: list[Future[str]] = []
        try:
            for number in range(calls):
                ended.append(pool.submit(outcome, lambda: ask(opened, profile(fake))))
                until(lambda count=number + 1: gate.waiting == count, 5)
            assert len(fake.log) == calls
        finally:
            gate.opened.set()
        assert [each.result(10) for each in ended].count("ok") == 5
    assert len(fake.log) == calls + 5


def test_patient_retries_take_from_the_budget_too(fake: Provider) -> None:
    with gateway() as opened:
        assert storm(opened, fake, 20, Step(status=429)) == 5
