"""Dates as records hold them: RFC 3339 in, UTC with milliseconds out."""

import re
from datetime import UTC, date, datetime

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,30})?(?P<offset>[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?", re.ASCII
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

EXAMPLE = "2026-03-01T09:30:00Z"


def parse(text: str) -> datetime:
    """The instant of an RFC 3339 date and time, in UTC, cut to microseconds.

    Raises ValueError with a message for the client. A time without an offset is refused: it names no instant, and
    guessing a zone would silently move a memory by hours (failure case G8).
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"must be an RFC 3339 date and time such as {EXAMPLE}")
    if match["offset"] is None:
        raise ValueError(f"has no offset from UTC; add Z or one like +02:00, as in {EXAMPLE}")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"is not a real date and time between the years 1 and 9999, such as {EXAMPLE}") from None


def parse_loosely(text: str) -> datetime | None:
    """The instant of an RFC 3339 date and time, or midnight UTC of a day `YYYY-MM-DD`; None for anything else."""
    try:
        if _DAY.fullmatch(text):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        return parse(text)
    except ValueError:
        return None


def to_milliseconds(moment: datetime) -> datetime:
    """`moment` cut to the precision that records are written with."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def heading_date(moment: datetime) -> str:
    """`YYYY/MM/DD (Mon) HH:MM` in UTC (memory-agent.md §1.2). Not strftime: that follows the locale."""
    utc = moment.astimezone(UTC)
    return f"{utc.year:04d}/{utc.month:02d}/{utc.day:02d} ({_WEEKDAYS[utc.weekday()]}) {utc.hour:02d}:{utc.minute:02d}"
