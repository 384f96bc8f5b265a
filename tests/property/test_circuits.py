"""The breaker and the retry budget under any order of events (memory-agent.md §10.1), on a clock that the test moves."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from core.errors import ModelUnavailable
from core.models.breaker import OPEN_SECONDS, THRESHOLD, TRIAL_SECONDS
from core.models.circuits import Circuits
from core.models.retry_budget import RetryBudget
from tests.fakes.models import Clock

NAME = "jev"


class Still(Clock):
    """Moves only when it is told to."""

    def monotonic(self) -> float:
        return 1_000.0 + self.skipped


class BreakerMachine(RuleBasedStateMachine):
    """Calls start one after the other; some are under way while others end."""

    @initialize()
    def begin(self) -> None:
        self.clock = Still()
        self.circuits = Circuits(self.clock.timing)
        self.under_way: list[bool] = []
        """Whether each is the trial."""
        self.failures = 0
        self.opened_at: float | None = None
        self.tried_at: float | None = None

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @rule(seconds=st.sampled_from([0.0, 0.1, 1.0, 19.0, 20.0, 21.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.skip(seconds)

    @rule()
    def a_call_starts(self) -> None:
        try:
            trial = self.circuits.admit(NAME)
        except ModelUnavailable as refused:
            assert self.opened_at is not None, "calls fail fast though there were no ten failures in a row"
            wait = refused.retry_after or 0
            assert wait > 0
            assert self.now < self.opened_at + OPEN_SECONDS or (
                self.tried_at is not None and self.now < self.tried_at + TRIAL_SECONDS
            ), "a trial was due"
            return
        assert trial == (self.opened_at is not None)
        if trial:
            assert self.opened_at is not None
            assert self.now >= self.opened_at + OPEN_SECONDS
            assert self.tried_at is None or self.now >= self.tried_at + TRIAL_SECONDS, "two trials within 20 s"
            self.tried_at = self.now
        self.under_way.append(trial)

    @rule(place=st.integers(0, 50))
    def one_fails(self, place: int) -> None:
        if self.under_way:
            self.under_way.pop(place % len(self.under_way))
            self.circuits.failed(NAME)
            self.failures += 1
            if self.failures >= THRESHOLD and (self.opened_at is None or self.now >= self.opened_at + OPEN_SECONDS):
                self.opened_at = self.now

    @rule(place=st.integers(0, 50))
    def one_is_answered(self, place: int) -> None:
        if self.under_way:
            trial = self.under_way.pop(place % len(self.under_way))
            self.circuits.answered(NAME, trial=trial)
            if trial or self.opened_at is None:
                self.failures, self.opened_at, self.tried_at = 0, None, None

    @invariant()
    def it_is_open_after_ten_failures_in_a_row_and_else_not(self) -> None:
        if hasattr(self, "circuits"):
            assert (self.circuits.open() == [NAME]) == (self.failures >= THRESHOLD)


class RetryMachine(RuleBasedStateMachine):
    """Against a list of everything that happened."""

    @initialize()
    def begin(self) -> None:
        self.now = 1_000.0
        self.budget = RetryBudget()
        self.calls: list[float] = []
        self.retries: list[float] = []

    @rule(tenths=st.integers(0, 200))
    def time_passes(self, tenths: int) -> None:
        self.now = round(self.now + tenths / 10, 1)

    @rule(count=st.integers(1, 40))
    def calls_begin(self, count: int) -> None:
        for _ in range(count):
            self.budget.called(self.now)
            self.calls.append(self.now)

    @rule(count=st.integers(1, 12))
    def retries_want_to_start(self, count: int) -> None:
        for _ in range(count):
            second = sum(1 for moment in self.retries if moment > self.now - 1.0)
            minute = sum(1 for moment in self.retries if moment > self.now - 60.0)
            begun = sum(1 for moment in self.calls if moment > self.now - 60.0)
            taken = self.budget.take(self.now)
            if second < 5:
                assert taken, "five may always start within a second"
            elif abs(minute + 1 - begun / 5) > 3:  # the window moves by tenths of a second
                assert taken == (minute + 1 <= begun / 5)
            if taken:
                self.retries.append(self.now)


TestBreaker = BreakerMachine.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestRetryBudget = RetryMachine.TestCase
TestRetryBudget.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
