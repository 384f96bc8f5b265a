"""How long a call waits before it tries again (memory-agent.md §10.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

BACKOFF_SECONDS = 0.5
BACKOFF_MOST_SECONDS = 16.0
PATIENT_SECONDS = 2.0
PATIENT_TIMES = 5
PATIENT_SUM_SECONDS = 30.0


def backoff(retry: int, random: float) -> float:
    """Before the `retry`-th retry of a call, from 1: 0.5 s × 2^(k−1), at most 16 s, × U[0.5, 1] (contract.md)."""
    whole = min(BACKOFF_SECONDS * 2.0 ** min(retry - 1, 30), BACKOFF_MOST_SECONDS)
    return whole * (0.5 + 0.5 * random)


@dataclass
class Patience:
    """A call's waits for 429s that name none: the k-th is 2 s × 2^(k−1) × U[0.75, 1], up to 5 and up to 30 s in all."""

    times: int = 0
    seconds: float = 0.0

    def wait(self, random: float, otherwise: float) -> float | None:
        """The next one, at least `otherwise` (the backoff); None: there is no patience left for it."""
        wait = max(PATIENT_SECONDS * 2.0**self.times * (0.75 + 0.25 * random), otherwise)
        if self.times >= PATIENT_TIMES or self.seconds + wait > PATIENT_SUM_SECONDS:
            return None
        self.times += 1
        self.seconds += wait
        return wait


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The wait that a refusal names, in seconds; None for none, 0, a past date or what cannot be read.

    `retry-after-ms` (System One) comes first. `headers` has lower-case names."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if text.isascii() and text.isdigit():
            if len(text) > 12:
                continue
            if int(text):
                return int(text) * unit
        elif name == "retry-after" and text:
            return _until(text, now)
    return None


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    seconds = (moment - now).total_seconds()
    return seconds if seconds > 0 else None
