"""What is to happen to a request: steps, one a request in order, or faults by chance."""

import random
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

FOR_EVER = 3600.0


@dataclass(frozen=True)
class Step:
    """Fields left out: an ordinary reply. Seconds; all fields may come from JSON."""

    status: int = 200
    reason: str = "Fake"
    """The words after the status."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str | None = None
    """The whole body, instead of the ordinary one; then nothing is metered."""
    patch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Laid over the ordinary reply as RFC 7396 says: null removes a field."""
    content: str | None = None
    """The text of a completion."""
    finish: str = "stop"
    usage: tuple[int, int] | None = None
    """Input and output tokens, instead of the fake's own count."""
    reasoning: int = 0
    """Of the output tokens."""
    delay: float = 0.0
    """Before the head of the reply."""
    stall: float = 0.0
    """Between its head and its body."""
    drip: float = 0.0
    """Between the pieces of the body, of which there are ten."""
    cut: bool = False
    """The connection ends in the middle of the body."""
    reset: Literal["", "before", "after"] = ""
    """The connection is reset before the body of the request is read, or after it."""
    echo: bool = False
    """The reply's error text repeats the credentials that came with the request."""


@dataclass(frozen=True)
class Asked:
    """What a step may depend on."""

    path: str
    body: bytes


CHAOS: dict[str, Step] = {
    "reset-before": Step(reset="before"),
    "reset-after": Step(reset="after"),
    "cut": Step(cut=True),
    "400": Step(status=400),
    "408": Step(status=408),
    "429": Step(status=429, headers={"Retry-After": "0"}),
    "500": Step(status=500),
    "503": Step(status=503),
    "529": Step(status=529),
    "html": Step(body="<html>bad gateway</html>"),
    "no-usage": Step(patch={"usage": None}),
    "garbled": Step(patch={"choices": None, "answers": None}),
    "slow": Step(delay=0.05),
}
"""Faults by name for `Script.chaos`; `garbled` is a reply that cannot be used and is metered all the same."""


class Script:
    """The steps still to come; any number of threads may add to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: deque[Step] = deque()
        self._matched: list[tuple[bytes, deque[Step]]] = []
        self._random = random.Random()
        self._chances: dict[str, float] = {}
        self.default = Step()

    def add(self, steps: Iterable[Step], match: str = "") -> None:
        """For the next requests; with `match` for those whose path or body has this text. A match goes first."""
        with self._lock:
            if match:
                self._matched.append((match.encode(), deque(steps)))
            else:
                self._steps.extend(steps)

    def chaos(self, seed: int, chances: Mapping[str, float]) -> None:
        """From now on, when no step is left: each fault of `CHAOS` with its chance."""
        unknown = set(chances) - set(CHAOS)
        assert not unknown, f"no such fault: {sorted(unknown)}; there are {sorted(CHAOS)}"
        with self._lock:
            self._random = random.Random(seed)
            self._chances = dict(chances)

    @property
    def left(self) -> int:
        """Steps that no request has come for."""
        with self._lock:
            return len(self._steps) + sum(len(steps) for _, steps in self._matched)

    def clear(self) -> None:
        with self._lock:
            self._steps.clear()
            self._matched.clear()
            self._chances = {}
            self.default = Step()

    def load(self, given: Mapping[str, Any]) -> None:
        """From JSON: `{"steps": [...], "default": {...}, "chaos": {"seed": 1, "chances": {...}}}`."""
        self.add([step(fields) for fields in given.get("steps", [])])
        self.default = step(given.get("default", {}))
        if chaos := given.get("chaos"):
            self.chaos(chaos["seed"], chaos["chances"])

    def early(self) -> Step | None:
        """The next step if it leaves the body of the request unread."""
        with self._lock:
            return self._steps.popleft() if self._steps and self._steps[0].reset == "before" else None

    def next(self, asked: Asked) -> Step:
        with self._lock:
            for text, steps in self._matched:
                if steps and (text in asked.body or text.decode() in asked.path):
                    return steps.popleft()
            return self._steps.popleft() if self._steps else self._by_chance()

    def _by_chance(self) -> Step:
        dice = self._random.random() if self._chances else 1.0
        for name, chance in self._chances.items():
            if dice < chance:
                return CHAOS[name]
            dice -= chance
        return self.default


def step(fields: Mapping[str, Any]) -> Step:
    """A step from JSON. Raises TypeError for a field that does not exist."""
    made = Step(**fields)
    return replace(made, usage=tuple(made.usage)) if made.usage else made
