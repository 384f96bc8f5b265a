"""One call as a row of attempts: which failures are tried again, when, and how often (memory-agent.md §10.1).

Retries never multiply: this is the only place that tries again, and its caller counts one call.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol

from core import clock
from core.errors import Cancelled, DeadlineExceeded
from core.models.attempt import Answered, Ask, Attempt, Failure, Parts, Value
from core.models.model import Call
from core.models.profiles import ModelProfile
from core.models.timing import SLICE_SECONDS
from core.models.waits import Patience, backoff

RETRY_AFTER_MOST_SECONDS = 300.0
"""An endpoint that wants a longer wait is not waited for."""

READ_SECONDS, READ_SECONDS_SYSTEM_ONE = 45.0, 20.0
FLUSH_SECONDS = 180.0
ATTEMPTS: Mapping[str, int] = {"read": 4, "flush": 3, "consolidation": 3}
PATIENT = frozenset({"read", "flush"})
"""The classes that wait out a 429 that names no wait."""


class Slots(Protocol):
    """In-flight limits of the fleet (core/budget/shares.py)."""

    def slot(
        self, provider: str, call_class: str, deadline: float | None, cancelled: Callable[[], bool]
    ) -> AbstractContextManager[object]: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """`attempts` in all; after `timeout` seconds an attempt is given up on, after `whole` it is cut. `patient`: a 429 that
    names no wait is waited out."""

    attempts: int
    timeout: float
    whole: float
    patient: bool = False


def policy_of(profile: ModelProfile, call_class: str) -> Policy:
    """What a profile's settings make of a class's own numbers."""
    whole = profile.timeout_seconds
    if call_class == "read":
        usual = READ_SECONDS_SYSTEM_ONE if profile.decides else READ_SECONDS
        timeout = profile.attempt_timeout_seconds or min(usual, whole)
    else:
        timeout = min(FLUSH_SECONDS, whole) if call_class == "flush" else whole
    return Policy(profile.max_attempts or ATTEMPTS[call_class], timeout, whole, call_class in PATIENT)


class Attempts:
    """For any number of threads."""

    def __init__(self, parts: Parts, slots: Slots) -> None:
        self._parts = parts
        self._slots = slots
        self._timing = parts.timing
        self._circuits = parts.circuits
        self._under_way = 0
        self._changed = threading.Condition()

    def run(self, ask: Ask[Value], call: Call, policy: Policy) -> Answered[Value]:
        """The first attempt's answer that holds. Raises what `Gateway.complete` raises."""
        self._circuits.called(ask.circuit)
        state = _Trying(policy)
        while True:
            self._still_wanted(call)
            self._circuits.check(ask.circuit)
            ended = self._attempt(ask, call, policy, state.last)
            if isinstance(ended, Answered):
                return ended
            wait = state.wait(ended, self._timing.random)
            if wait is None or not self._in_time(wait, call):
                raise ended.error
            self._timing.sleep(wait, call.cancelled)

    def drain(self, seconds: float) -> bool:
        """Waits for the attempts that nobody waits for any more. False: some still run."""
        with self._changed:
            return self._changed.wait_for(lambda: self._under_way == 0, seconds)

    def _count(self, change: int) -> None:
        with self._changed:
            self._under_way += change
            self._changed.notify_all()

    def _still_wanted(self, call: Call) -> None:
        if call.cancelled():
            raise Cancelled("the work that asked a model was cancelled")
        if call.deadline is not None and self._timing.monotonic() >= call.deadline:
            raise DeadlineExceeded("the deadline passed before the model was asked")

    def _in_time(self, wait: float, call: Call) -> bool:
        return call.deadline is None or self._timing.monotonic() + wait < call.deadline

    def _attempt(self, ask: Ask[Value], call: Call, policy: Policy, after: Failure | None) -> Answered[Value] | Failure:
        """Waits for a place in flight, starts an attempt on a thread of its own and waits for it. The place is the attempt's:
        nothing in flight is held while a call waits for its next try (failure-cases.md S16)."""
        place = ExitStack()
        place.enter_context(
            self._slots.slot(ask.provider, call.spender.call_class, self._real(call.deadline), call.cancelled)
        )
        self._count(1)
        place.callback(self._count, -1)
        attempt = Attempt(ask, call, policy.whole, self._parts, place, after)
        try:
            attempt.start()
            return self._await(attempt, call, policy)
        except BaseException:
            attempt.forget()
            raise

    def _await(self, attempt: Attempt[Value], call: Call, policy: Policy) -> Answered[Value] | Failure:
        """Once the caller stops waiting, the attempt runs on and settles by itself."""
        while (ended := attempt.ended(self._slice(attempt, call, policy))) is None:
            now = self._timing.monotonic()
            if attempt.sent_at is not None and now >= attempt.sent_at + policy.timeout:
                ended = attempt.time_out()
                break
            if call.cancelled():
                raise Cancelled("the work that asked a model was cancelled")
            if call.deadline is not None and now >= call.deadline:
                raise DeadlineExceeded("the deadline passed while the model was asked")
        return ended

    def _slice(self, attempt: Attempt[Value], call: Call, policy: Policy) -> float:
        now, ends = self._timing.monotonic(), [SLICE_SECONDS]
        if attempt.sent_at is not None:
            ends.append(attempt.sent_at + policy.timeout - now)
        if call.deadline is not None:
            ends.append(call.deadline - now)
        return max(min(ends), 0.0)

    def _real(self, deadline: float | None) -> float | None:
        return None if deadline is None else clock.monotonic() + deadline - self._timing.monotonic()


class _Trying:
    """What a call has used up."""

    def __init__(self, policy: Policy) -> None:
        self.last: Failure | None = None
        self._left = policy.attempts - 1
        self._retries = 0
        self._patience = Patience() if policy.patient else None
        self._bad_reply = False

    def wait(self, failure: Failure, random: Callable[[], float]) -> float | None:
        """Seconds before the next attempt; None: there is none."""
        self.last = failure
        if failure.retry == "never" or (failure.retry == "once" and self._bad_reply):
            return None
        self._retries += 1
        usual = backoff(self._retries, random())
        if failure.unnamed_429 and self._patience is not None:
            patient = self._patience.wait(random(), usual)
            if patient is not None:
                return patient
        if self._left == 0:
            return None
        self._left -= 1
        self._bad_reply |= failure.retry == "once"
        if (failure.retry_after or 0) > RETRY_AFTER_MOST_SECONDS:
            return None
        return max(usual, failure.retry_after or 0)
