"""The retry budget: what keeps retries from becoming the load that breaks a provider (memory-agent.md §10.1).

Over a minute, retries may be 20 % of the provider's calls; and 5 may always start within any second. This is one process's
count, which holds while the fleet's (core/budget/shared.py) cannot be asked. Not locked: `Circuits` locks.
"""

from collections import deque

SHARE = 5
"""One retry for so many calls."""
WINDOW_SECONDS = 60.0
ALWAYS = 5
SECOND = 1.0


class Window:
    """How many things happened within the last minute, to a tenth of a second, in at most 600 places."""

    GRAIN = 0.1

    def __init__(self) -> None:
        self._places: deque[list[int]] = deque()
        self._sum = 0

    def add(self, now: float) -> None:
        place = int(now / self.GRAIN)
        if self._places and self._places[-1][0] >= place:
            self._places[-1][1] += 1
        else:
            self._places.append([place, 1])
        self._sum += 1

    def count(self, now: float) -> int:
        oldest = int((now - WINDOW_SECONDS) / self.GRAIN)
        while self._places and self._places[0][0] <= oldest:
            self._sum -= self._places.popleft()[1]
        return self._sum


class RetryBudget:
    """Of one circuit."""

    def __init__(self) -> None:
        self._calls = Window()
        self._retries = Window()
        self._starts: deque[float] = deque(maxlen=ALWAYS)

    def called(self, now: float) -> None:
        """A call began: its first attempt starts."""
        self._calls.add(now)

    def take(self, now: float) -> bool:
        """Takes a retry that starts now; False: there is none left, and the retry must not start."""
        room = len(self._starts) < ALWAYS or now - self._starts[0] >= SECOND
        if not room and (self._retries.count(now) + 1) * SHARE > self._calls.count(now):
            return False
        self._retries.add(now)
        self._starts.append(now)
        return True
