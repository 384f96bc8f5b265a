"""The circuit breaker: after 10 availability failures in a row calls fail fast for 20 s, then one may try
(memory-agent.md §10.1).

A state machine of one process over times it is given. Not locked: `Circuits` locks.
"""

from typing import Literal

THRESHOLD = 10
OPEN_SECONDS = 20.0
TRIAL_SECONDS = 20.0
"""A trial that has not ended by then makes way for another."""

Verdict = Literal["closed", "open", "trial"]


class Breaker:
    """`failures` in a row; `open_until` None while calls may pass."""

    def __init__(self) -> None:
        self.failures = 0
        self.open_until: float | None = None
        self._trial_until = 0.0
        self.changed_at = float("-inf")

    def verdict(self, now: float) -> Verdict:
        """Whether a call may pass: always, not, or as the one that tries."""
        if self.open_until is None:
            return "closed"
        return "trial" if now >= self.open_until and now >= self._trial_until else "open"

    def left(self, now: float) -> float:
        """Seconds until a trial may be made; at least 0."""
        return max(0.0, (self.open_until or now) - now, self._trial_until - now)

    def tried(self, now: float) -> None:
        """A trial starts, here or elsewhere."""
        self._trial_until = now + TRIAL_SECONDS
        self.changed_at = now

    def failed(self, now: float) -> None:
        """Failures of calls that were sent before an open period began do not lengthen it."""
        failures = self.failures + 1
        left = None if self.open_until is None or self.open_until <= now else self.open_until - now
        self.adopt(failures, left or (OPEN_SECONDS if failures >= THRESHOLD else None), now)

    def answered(self, now: float) -> None:
        """Anything but an availability failure: the count starts again."""
        self.adopt(0, None, now)

    def adopt(self, failures: int, open_seconds: float | None, now: float) -> None:
        """Takes over what the fleet knows. `open_seconds`: from now, 0 when a trial is due; None: not open."""
        self.failures = failures
        self.open_until = None if open_seconds is None else now + open_seconds
        self._trial_until = 0.0  # a trial elsewhere is part of `open_seconds`
        self.changed_at = now
