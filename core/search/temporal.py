"""Dates and ranges of time that a question names: absolute ones, and ones relative to a moment (English, ISO, 年月日).

Spans are half-open and in UTC. An open side is None: `before May` has no start. Nothing is guessed for a text that names
no date: then there is no span, and the route is silent.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from core.search import calendar
from core.search.calendar import Days

_DATELINE = re.compile(r"\s*(?:current\s+)?(?:date|time)[^:\n]{0,20}:([^\n]*)(?:\n|$)", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|from)\s+(?:the\s+)?$", re.IGNORECASE)
_AND = re.compile(r"\s*(?:and|to|until|till|through|[-–—~])\s*(?:the\s+)?", re.IGNORECASE)
_BEFORE = re.compile(r"\b(?:before|until|till|prior to|by|up to)\s+(?:the\s+)?$", re.IGNORECASE)
_AFTER = re.compile(r"\b(?:after|since|from|following)\s+(?:the\s+)?$", re.IGNORECASE)
_SINCE = re.compile(r"\b(?:since|from)\s+(?:the\s+)?$", re.IGNORECASE)

SPANS = 8
"""The most that count of one question."""
TEXT_POINTS = 4_000
"""Of one text, this much is read."""


@dataclass(frozen=True, slots=True)
class Span:
    """`start` ≤ t < `end`; at least one side is closed."""

    start: datetime | None
    end: datetime | None

    def distance(self, moment: datetime) -> tuple[float, float]:
        """Seconds outside the span, then seconds from its named edge: its start, or the end of one without a start."""
        outside = 0.0
        if self.start is not None and moment < self.start:
            outside = (self.start - moment).total_seconds()
        elif self.end is not None and moment >= self.end:
            outside = (
                moment - self.end
            ).total_seconds() + 1e-6  # its end is not in it, and many events lie at midnight
        edge = self.start or self.end
        assert edge is not None
        return outside, abs((moment - edge).total_seconds())


def split_dateline(question: str) -> tuple[str, str]:
    """The question without a first line that states the current date or time, and what that line states ("" without)."""
    match = _DATELINE.match(question)
    return (question[match.end() :], match[1].strip()) if match else (question, "")


def reference(question: str, recent: Sequence[str], now: datetime) -> datetime:
    """The moment that `yesterday` counts from: the date the question begins with, else the newest date that the newest of
    the recent messages (oldest first) names absolutely, else `now`."""
    _, stated = split_dateline(question)
    for text in (stated, *recent[-1:]):
        named = [found for _, _, found in calendar.absolute(text[:TEXT_POINTS], None)]
        if named:
            return _midnight(max(found.first for found in named)) + timedelta(hours=12)
    return now.astimezone(UTC)


def spans(question: str, moment: datetime) -> list[Span]:
    """What the question names, in its order, each once; at most 8. `moment`: see `reference`."""
    text = split_dateline(question)[0][:TEXT_POINTS]
    named = calendar.named(text, moment.astimezone(UTC).date())
    found: list[Span] = []
    skip = False
    for place, (start, end, days) in enumerate(named):
        if skip:
            skip = False
            continue
        before = text[:start]
        following = named[place + 1] if place + 1 < len(named) else None
        if following and _BETWEEN.search(before) and _AND.fullmatch(text[end : following[0]]):
            found.append(_hull(days, following[2]))
            skip = True
        else:
            found.append(_directed(before, days))
    return list(dict.fromkeys(found))[:SPANS]


def distance(moment: datetime, named: Sequence[Span]) -> tuple[float, float]:
    """To the nearest span; smaller is better."""
    return min(span.distance(moment) for span in named)


def _hull(one: Days, other: Days) -> Span:
    return _closed(Days(min(one.first, other.first), max(one.last, other.last)))


def _directed(before: str, days: Days) -> Span:
    span = _closed(days)
    if _BEFORE.search(before):
        return Span(None, span.start)
    if _AFTER.search(before):
        return Span(span.start if _SINCE.search(before) else span.end, None)
    return span


def _closed(days: Days) -> Span:
    try:
        return Span(_midnight(days.first), _midnight(days.last) + timedelta(days=1))
    except OverflowError:  # the last day there is
        return Span(_midnight(days.first), None)


def _midnight(day: calendar.date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
