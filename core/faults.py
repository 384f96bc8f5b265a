"""Fault hooks: named points at which a drill may kill the process, fail, wait, or leave a step out.

A real process has none (`Faults()` does nothing). A spec is `point=action[:chance[:argument]]` joined by `;`, e.g.
`commit.before=kill:0.1;relay.sent=raise`. Actions: `kill` (SIGKILL to ourselves), `raise` (`Unavailable`), `sleep` (argument
in seconds) and `skip` (`hit` answers True and the caller leaves its step out: how a benchmark shows that its bar can fail).
"""

import os
import random
import signal
import time
from dataclasses import dataclass

from core.errors import Unavailable
from core.settings import SettingsError

POINTS = frozenset(
    {
        "submit.before", "submit.committed", "submit.sent", "submit.group", "submit.wake", "submit.disk",
        "claim.before", "claim.after", "work.before", "work.after",
        "commit.begin", "commit.effects", "commit.before", "commit.after", "commit.fence",
        "writes.locked", "writes.checked", "writes.inserted", "writes.finished",
        "relay.picked", "relay.sent", "relay.swept", "relay.resend",
        "import.split", "import.children",
        "index.copied", "index.before",
        "budget.reserve", "budget.reserved", "budget.settle", "budget.settled",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    action: str
    chance: float
    argument: float


class Faults:
    """Parsed once from `MUNIMENT_FAULTS` and handed to what has points."""

    def __init__(self, spec: str = "") -> None:
        self._faults: dict[str, Fault] = {}
        for part in filter(None, (piece.strip() for piece in spec.split(";"))):
            point, _, rule = part.partition("=")
            action, *rest = rule.split(":")
            if point not in POINTS or action not in {"kill", "raise", "sleep", "skip"}:
                raise SettingsError(
                    f"MUNIMENT_FAULTS: {part!r} is not `point=kill|raise|sleep|skip[:chance[:seconds]]`"
                )
            numbers = [float(number) for number in rest]
            self._faults[point] = Fault(action, numbers[0] if numbers else 1.0, numbers[1] if len(numbers) > 1 else 0.0)

    def hit(self, point: str) -> bool:
        """Carries out the fault of this point, if there is one. True: leave the step out."""
        fault = self._faults.get(point)
        if fault is None or random.random() >= fault.chance:  # noqa: S311  chance of a drill, not a secret
            return False
        if fault.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.action == "raise":
            raise Unavailable(f"fault hook at {point}")
        if fault.action == "sleep":
            time.sleep(fault.argument)
        return fault.action == "skip"
