"""The one place that reads a clock. Ages of rows are computed by the database clock, never by this one."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The wall clock as an aware UTC time."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never goes back; for deadlines within one process."""
    return time.monotonic()


def rfc3339(moment: datetime) -> str:
    """`2026-11-30T14:05:09.123Z`: UTC with milliseconds, as every time in our JSON (contract.md, The record)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
