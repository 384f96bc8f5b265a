"""When what has died is started again: later each time it dies in a row."""

from dataclasses import dataclass, field

from core.clock import monotonic

STABLE_S = 60.0
BACK_OFF_S = (0.5, 1, 2, 4, 8, 16, 30)


@dataclass(slots=True)
class Deaths:
    """Of one process or server: how many in a row, since when it runs (None: it does not), and when it may start again."""

    row: int = 0
    since: float | None = field(default_factory=monotonic)
    again_at: float | None = None

    def another(self) -> float:
        """Counts one; the seconds until the next start, more each time."""
        stable = self.since is not None and monotonic() - self.since > STABLE_S
        self.row = 1 if stable else self.row + 1
        self.since = None  # a start that fails is no time of running
        wait = BACK_OFF_S[min(self.row, len(BACK_OFF_S)) - 1]
        self.again_at = monotonic() + wait
        return wait

    def started(self) -> None:
        self.since = monotonic()
        self.again_at = None
