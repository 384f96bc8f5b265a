"""Breakers and retry budgets of one process, shared with the fleet through Postgres, and good alone when that fails.

A circuit is a provider at its official endpoint, or one other endpoint: `ModelProfile.circuit`.
"""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from core.errors import ModelUnavailable
from core.models.breaker import OPEN_SECONDS, THRESHOLD, TRIAL_SECONDS, Breaker
from core.models.retry_budget import RetryBudget
from core.models.shared_circuits import KnownBreaker, SharedCircuits
from core.models.timing import Timing

_log = logging.getLogger(__name__)

REFRESH_SECONDS = 0.5
"""How often a process asks what others know, and says how many calls it began: half the staleness that is allowed."""

Value = TypeVar("Value")


class Circuits:
    """For any number of threads. `refresh` is to be called every `REFRESH_SECONDS`; `sharing` None: this process alone."""

    def __init__(self, timing: Timing, sharing: SharedCircuits | None = None, holder: str = "") -> None:
        self._timing = timing
        self._sharing = sharing
        self._holder = holder
        self._lock = threading.Lock()
        self._breakers: dict[str, Breaker] = {}
        self._budgets: dict[str, RetryBudget] = {}
        self._calls: dict[str, int] = {}

    # Breakers -----------------------------------------------------------------------------------------------------------

    def check(self, circuit: str) -> None:
        """Raises ModelUnavailable while calls fail fast. Takes no trial."""
        with self._lock:
            breaker, now = self._breaker(circuit), self._timing.monotonic()
            if breaker.verdict(now) == "open":
                raise _open(circuit, breaker, now)

    def admit(self, circuit: str) -> bool:
        """For an attempt that is about to be sent; True: it is the trial. Raises ModelUnavailable."""
        with self._lock:
            breaker, now = self._breaker(circuit), self._timing.monotonic()
            verdict = breaker.verdict(now)
            if verdict == "closed":
                return False
            if verdict == "open":
                raise _open(circuit, breaker, now)
            breaker.tried(now)
        if self._ask(lambda shared: shared.breaker_trial(circuit, self._holder, TRIAL_SECONDS)) is False:
            raise _open(circuit, breaker, self._timing.monotonic())
        return True

    def failed(self, circuit: str) -> None:
        """An attempt ended in a connection error, a time-out or a 5xx."""
        known = self._ask(lambda shared: shared.breaker_failed(circuit, THRESHOLD, OPEN_SECONDS))
        with self._lock:
            breaker, now = self._breaker(circuit), self._timing.monotonic()
            was_open = breaker.open_until is not None
            if known is None:
                breaker.failed(now)
            else:
                breaker.adopt(known.failures, _open_seconds(known), now)
            if breaker.open_until is not None and not was_open:
                _log.warning("%s failed %d times in a row: calls fail fast", circuit, breaker.failures)

    def answered(self, circuit: str, *, trial: bool) -> None:
        """An attempt ended in anything else. While calls fail fast, only the trial's counts: others were sent before."""
        with self._lock:
            breaker = self._breaker(circuit)
            if not breaker.failures or (breaker.open_until is not None and not trial):
                return
            breaker.answered(self._timing.monotonic())
        if trial:
            _log.warning("%s answers again", circuit)
        known = self._ask(lambda shared: shared.breaker_recovered(circuit, trial=trial))
        if known is not None:  # others opened it since
            with self._lock:
                self._breaker(circuit).adopt(known.failures, _open_seconds(known), self._timing.monotonic())

    # Retries ------------------------------------------------------------------------------------------------------------

    def called(self, circuit: str) -> None:
        """A call begins."""
        with self._lock:
            self._budget(circuit).called(self._timing.monotonic())
            self._calls[circuit] = self._calls.get(circuit, 0) + 1

    def take_retry(self, circuit: str) -> bool:
        """Takes a retry that starts now; False: the budget has none left."""
        shared = self._ask(lambda sharing: sharing.take_retry(circuit))
        with self._lock:
            own = self._budget(circuit).take(self._timing.monotonic())
        return own if shared is None else shared

    # Sharing ------------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Says how many calls began here, and learns which circuits others opened and closed."""
        if self._sharing is None:
            return
        began = self._timing.monotonic()
        with self._lock:
            calls, self._calls = self._calls, {}
        if calls:
            self._ask(lambda shared: shared.add_calls(calls))
        known = self._ask(lambda shared: shared.breakers())
        if known is None:
            return
        with self._lock:
            now = self._timing.monotonic()
            for circuit in self._breakers.keys() | known.keys():
                breaker, theirs = self._breaker(circuit), known.get(circuit)
                if breaker.changed_at >= began:
                    continue  # what we know is newer
                if theirs is None:
                    breaker.answered(now)
                else:
                    breaker.adopt(theirs.failures, _open_seconds(theirs), now)

    def open(self) -> list[str]:
        """The circuits whose calls fail fast."""
        with self._lock:
            return sorted(name for name, breaker in self._breakers.items() if breaker.open_until is not None)

    def _ask(self, question: Callable[[SharedCircuits], Value]) -> Value | None:
        """None: there is nobody to ask, or no answer: this process decides by itself."""
        if self._sharing is None:
            return None
        try:
            return question(self._sharing)
        except Exception as error:
            # Whatever it is: no answer of a model is lost for it.
            _log.warning("breakers and retry budgets are this process's own for now: %s", error)
            return None

    def _breaker(self, circuit: str) -> Breaker:
        return self._breakers.setdefault(circuit, Breaker())

    def _budget(self, circuit: str) -> RetryBudget:
        return self._budgets.setdefault(circuit, RetryBudget())


def _open_seconds(known: KnownBreaker) -> float | None:
    left = known.open_left_seconds
    return None if left is None else max(left, 0.0)


def _open(circuit: str, breaker: Breaker, now: float) -> ModelUnavailable:
    wait = breaker.left(now)
    return ModelUnavailable(
        f"{circuit} failed {breaker.failures} times in a row: calls fail fast until one succeeds; the next trial is in "
        f"{wait:.0f} s",
        retry_after=max(1, round(wait)),
    )
