"""How long attempts may take, and what becomes of those that take longer (seed: "A request times out…").

Long times are skipped on the tests' clock while a request hangs at the fake provider; the sockets are real.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from core.errors import Cancelled
from core.models import transport
from core.models.model import DeadlineExceeded, ModelUnavailable
from core.models.timing import SLICE_SECONDS
from tests.fakes.attempting import ask, gateway, profile
from tests.fakes.fleet import until
from tests.fakes.models import Alone
from tests.fakes.provider import Provider, Step, provider

HANG = Step(delay=600)
LOOK = 3 * SLICE_SECONDS
"""Real seconds in which a call has seen that the clock moved."""


@pytest.fixture
def fake() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def seen(fake: Provider, count: int) -> None:
    until(lambda: len(fake.log) >= count, 5, lambda: fake.log)


def never_more(fake: Provider, count: int) -> None:
    time.sleep(LOOK)
    assert len(fake.log) == count


def limits(kind: str, call_class: str, **fields: Any) -> Any:
    return (kind, call_class, fields)


@pytest.mark.parametrize(
    ("given", "seconds", "most"),
    [
        (limits("jev", "read"), 20, 4),
        (limits("deepseek", "read"), 45, 4),
        (limits("openai", "read"), 45, 4),
        (limits("openai", "read", timeoutSeconds=30), 30, 4),
        (limits("jev", "read", attemptTimeoutSeconds=7), 7, 4),
        (limits("jev", "flush"), 90, 3),
        (limits("jev", "flush", timeoutSeconds=600), 180, 3),
        (limits("jev", "flush", timeoutSeconds=600, attemptTimeoutSeconds=7), 180, 3),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_an_attempt_past_its_time_is_tried_again(
    fake: Provider, pool: ThreadPoolExecutor, given: tuple[str, Any, dict[str, Any]], seconds: float, most: int
) -> None:
    kind, call_class, fields = given
    fake.always(HANG)
    with gateway() as opened:
        called = pool.submit(ask, opened, profile(fake, kind, **fields), call_class)
        for attempt in range(1, most + 1):
            seen(fake, attempt)
            opened.clock.skip(seconds - 1)
            never_more(fake, attempt)
            opened.clock.skip(1)
        with pytest.raises(ModelUnavailable, match="in time"):
            called.result(5)
        assert len(fake.log) == most
        fake.refuse()
        until(lambda: opened.purse.open == 0, 5)


def test_a_consolidations_attempt_is_cut_at_timeout_seconds_even_in_mid_reply(fake: Provider) -> None:
    """Counted from sending to the whole reply: this one never falls silent. On the real clock."""
    fake.always(Step(drip=0.3))
    with gateway() as opened:
        began = time.monotonic()
        with pytest.raises(ModelUnavailable, match="in time"):
            ask(opened, profile(fake, timeoutSeconds=1, maxAttempts=1), "consolidation")
        assert 1 <= time.monotonic() - began < 2
        until(lambda: opened.purse.ended, 5)
        assert opened.purse.ended == [("estimated", "timeout", opened.purse.reserved[0].input)]
    until(lambda: fake.log[0].outcome == "gone", 5, lambda: fake.log)


def test_a_consolidations_attempts_each_have_their_time(fake: Provider) -> None:
    fake.script([HANG, HANG, Step()])
    with gateway() as opened:
        assert ask(opened, profile(fake, timeoutSeconds=1), "consolidation")
        until(lambda: opened.purse.open == 0, 5)
        assert sorted(how for how, _, _ in opened.purse.ended) == ["estimated", "estimated", "settled"]


@pytest.mark.parametrize(("call_class", "seconds"), [("read", 20), ("flush", 180)])
def test_what_timed_out_runs_on_and_settles_while_its_retry_runs(
    fake: Provider, pool: ThreadPoolExecutor, call_class: Any, seconds: float
) -> None:
    fake.script([Step(delay=1.5, usage=(111, 1)), Step(usage=(222, 2))])
    with gateway() as opened:
        called = pool.submit(ask, opened, profile(fake, timeoutSeconds=600), call_class)
        seen(fake, 1)
        opened.clock.skip(seconds)
        assert called.result(5).usage.input_tokens == 222
        assert (opened.purse.open, opened.purse.tokens) == (1, [(222, 2)]), "the first is still under way"
        until(lambda: opened.purse.open == 0, 5)
    assert opened.purse.ended == [("settled", "ok", 222 * 42), ("settled", "ok", 111 * 42)]
    assert [row.outcome for row in fake.log] == ["sent", "sent"]


def test_after_sixty_seconds_of_silence_it_is_cut_and_tried_again(fake: Provider) -> None:
    """With 0.4 s in their place. Silence before the head of the reply does not count."""
    assert transport.SILENCE_SECONDS == 60
    fake.script([Step(stall=30), Step(drip=30), Step(delay=0.8)])
    with gateway(silence=0.4) as opened:
        began = time.monotonic()
        assert ask(opened, profile(fake))
        assert 1.6 <= time.monotonic() - began < 5
        assert opened.purse.ended[:2] == [("estimated", "lost", opened.purse.reserved[0].input)] * 2
    assert [row.outcome for row in fake.log] == ["gone", "gone", "sent"]


def test_a_slow_reply_that_never_falls_silent_is_not_cut(fake: Provider) -> None:
    fake.script([Step(drip=0.15)])
    with gateway(silence=0.4) as opened:
        assert ask(opened, profile(fake))
    assert len(fake.log) == 1


# The caller's deadline ----------------------------------------------------------------------------------------------------


def test_no_attempt_begins_after_the_deadline(fake: Provider) -> None:
    with gateway() as opened:
        with pytest.raises(DeadlineExceeded):
            ask(opened, profile(fake), deadline=opened.clock.monotonic() - 0.001)
        assert opened.purse.reserved == []
    assert fake.log == []


def test_the_deadline_ends_the_call_and_the_attempt_settles_by_itself(fake: Provider) -> None:
    fake.script([Step(delay=1)])
    with gateway() as opened:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            ask(opened, profile(fake), deadline=opened.clock.monotonic() + 0.3)
        assert time.monotonic() - began < 0.8
        until(lambda: opened.purse.open == 0, 5)
        assert opened.purse.ended == [("settled", "ok", fake.log[0].cost_nanos)]
    assert len(fake.log) == 1


def test_a_cancelled_call_ends_at_once_and_its_attempt_settles(fake: Provider, pool: ThreadPoolExecutor) -> None:
    fake.script([Step(delay=1)])
    stop = threading.Event()
    with gateway() as opened:
        called: Future[Any] = pool.submit(ask, opened, profile(fake), cancelled=stop.is_set)
        seen(fake, 1)
        stop.set()
        with pytest.raises(Cancelled):
            called.result(0.8)
        until(lambda: opened.purse.open == 0, 5)
        assert opened.purse.ended == [("settled", "ok", fake.log[0].cost_nanos)]
    assert len(fake.log) == 1


# Places in flight ---------------------------------------------------------------------------------------------------------


def test_s16_who_waits_for_his_next_try_holds_no_place(fake: Provider, pool: ThreadPoolExecutor) -> None:
    """Four places, four callers in their backoff: a fifth call goes through."""
    places = Places(4)
    fake.script([Step(status=503)] * 4)
    waiting, go = threading.Barrier(5), threading.Event()

    def asleep(_: float) -> None:
        waiting.wait(5)
        go.wait(5)

    with gateway(slots=places) as opened:
        opened.clock.asleep = asleep
        four = [pool.submit(ask, opened, profile(fake)) for _ in range(4)]
        waiting.wait(5)
        try:
            assert fifth(opened, fake)
        finally:
            go.set()
        assert all(each.result(5) for each in four)
    assert places.free == 4


def fifth(opened: Alone, fake: Provider) -> bool:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(ask(opened, profile(fake))))
    thread.start()
    thread.join(5)
    return bool(done)


class Places:
    """So many places, and no waiting: a call that finds none fails the test."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._lock = threading.Lock()

    def slot(self, provider: str, call_class: str, deadline: float | None, cancelled: Any) -> "Places":
        del provider, call_class, deadline, cancelled
        return self

    def __enter__(self) -> None:
        with self._lock:
            assert self.free > 0
            self.free -= 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.free += 1
