"""Expressions of time and the days they mean. Weeks begin on Monday; seasons are the northern half's, whole months."""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import NamedTuple


class Days(NamedTuple):
    """From the first day to the last, both included."""

    first: date
    last: date


Named = tuple[int, int, Days]
"""Where an expression begins and ends in the text, and what it means."""

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sept sep", "october oct", "november nov", "december dec"), start=1,
    )
    for name in names.split()
}  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = {
    name: number
    for number, names in enumerate(
        ("", "a an one", "two couple", "three few", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
         "twelve")
    )
    for name in names.split()
}  # fmt: skip

_MONTH = "(?P<month>" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_COUNT = r"(?P<count>\d{1,3}|" + "|".join(_NUMBERS) + r")(?:\s+of)?"
_SEASON = "(?P<season>" + "|".join(_SEASONS) + ")"
_WEEKDAY = "(?P<weekday>" + "|".join(_WEEKDAYS) + ")"
_IN = (
    "(?:in|during|of|since|from|until|till|by|before|after|between|and|to|through|year|early|late|mid)"
    r"[ -]+(?:the\s+)?(?:year\s+)?"
)


def absolute(text: str, today: date | None) -> Iterator[Named]:
    """Dates that are named with their year; with `today` also those without one: the latest that has begun by then."""
    return _scan(text, _ABSOLUTE, today)


def named(text: str, today: date) -> list[Named]:
    """Every expression, in the order of the text; none overlaps another."""
    return sorted(_scan(text, (*_ABSOLUTE, *_RELATIVE), today))


Reader = Callable[[re.Match[str], "date | None"], "Days | None"]


def _scan(text: str, rules: tuple[tuple[re.Pattern[str], Reader], ...], today: date | None) -> Iterator[Named]:
    free = text
    for pattern, read in rules:
        for match in pattern.finditer(free):
            try:
                days = read(match, today)
            except (ValueError, OverflowError):  # no such day, or beyond the calendar
                days = None
            if days is not None:
                start = match.start("at") if "at" in pattern.groupindex else match.start()
                yield start, match.end(), days
                free = free[:start] + "\0" * (match.end() - start) + free[match.end() :]


def _compiled(*rules: tuple[str, Reader]) -> tuple[tuple[re.Pattern[str], Reader], ...]:
    return tuple((re.compile(rf"(?<![\w/.-])(?:{pattern})(?!\w)", re.IGNORECASE), read) for pattern, read in rules)


def _month_of(year: int, month: int) -> Days:
    return Days(date(year, month, 1), date(year, month, monthrange(year, month)[1]))


def _months(year: int, month: int, count: int) -> Days:
    """`count` months from this one on; `month` may lie outside 1–12."""
    first = year * 12 + month - 1
    last = first + count - 1
    return Days(_month_of(first // 12, first % 12 + 1).first, _month_of(last // 12, last % 12 + 1).last)


def _one(day: date) -> Days:
    return Days(day, day)


def _week(day: date) -> Days:
    monday = day - timedelta(days=day.weekday())
    return Days(monday, monday + timedelta(days=6))


# -- absolute -------------------------------------------------------------------------------------------------------


def _iso(match: re.Match[str], today: date | None) -> Days | None:
    year, month, day = match["year"], match["m"], match["d"]
    return _one(date(int(year), int(month), int(day))) if day else _month_of(int(year), int(month))


def _written(match: re.Match[str], today: date | None) -> Days | None:
    """A day of a month, or a month; without its year the latest that has begun."""
    month = _MONTHS[match["month"].lower()]
    groups = match.groupdict()
    day = int(groups["day"]) if groups.get("day") else None
    year = int(groups["year"]) if groups.get("year") else None
    if year is None:
        if today is None or match["month"] == "may":  # the verb
            return None
        year = today.year if (month, day or 1) <= (today.month, today.day) else today.year - 1
        if (month, day) == (2, 29):
            year -= next(n for n in range(9) if monthrange(year - n, 2)[1] == 29)
    return _month_of(year, month) if day is None else _one(date(year, month, day))


def _season(match: re.Match[str], today: date | None) -> Days | None:
    return _months(int(match["year"]), _SEASONS[match["season"].lower()], 3)


def _quarter(match: re.Match[str], today: date | None) -> Days | None:
    return _months(int(match["year"]), int(match["quarter"]) * 3 - 2, 3)


def _year(match: re.Match[str], today: date | None) -> Days | None:
    return _months(int(match["year"]), 1, 12)


def _han(match: re.Match[str], today: date | None) -> Days | None:
    year, month, day = int(match["year"]), match["m"], match["d"]
    if day:
        return _one(date(year, int(month), int(day)))
    return _month_of(year, int(month)) if month else _months(year, 1, 12)


_HAN = (re.compile(r"(?<!\d)(?P<year>\d{4})年(?:(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})日)?)?"), _han)

_ABSOLUTE = (
    _HAN,
    *_compiled(
        (r"(?P<year>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?:T[\d:.]+Z?)?", _iso),
        (r"(?P<year>(?:19|20)\d\d)[-/](?P<m>0[1-9]|1[0-2])(?P<d>)", _iso),
        (rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s+{_YEAR}", _written),
        (rf"{_MONTH}\s+{_DAY},?\s+{_YEAR}", _written),
        (rf"{_MONTH},?\s+(?:of\s+)?{_YEAR}", _written),
        (rf"{_SEASON}\s+(?:of\s+)?{_YEAR}", _season),
        (rf"Q(?P<quarter>[1-4])\s+(?:of\s+)?{_YEAR}", _quarter),
        (rf"{_DAY}\s+(?:of\s+)?{_MONTH}", _written),
        (rf"{_MONTH}\s+{_DAY}", _written),
        (rf"{_IN}(?P<at>{_YEAR})", _year),
    ),
)


# -- relative to a day ----------------------------------------------------------------------------------------------


def _shifted(days: int) -> Reader:
    def read(match: re.Match[str], today: date | None) -> Days | None:
        return None if today is None else _one(today + timedelta(days=days))

    return read


def _count(match: re.Match[str]) -> int:
    text = match["count"].lower()
    return int(text) if text.isdigit() else _NUMBERS[text]


def _ago(match: re.Match[str], today: date | None) -> Days | None:
    """As exact as the unit: a day, seven days around one, a month, a year."""
    if today is None:
        return None
    count = _count(match)
    unit = match["unit"].lower()
    if unit == "day":
        return _one(today - timedelta(days=count))
    if unit == "week":
        middle = today - timedelta(weeks=count)
        return Days(middle - timedelta(days=3), middle + timedelta(days=3))
    return _months(today.year, today.month - count, 1) if unit == "month" else _months(today.year - count, 1, 12)


def _past(match: re.Match[str], today: date | None) -> Days | None:
    """`the last three weeks`: up to today."""
    if today is None:
        return None
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[match["unit"].lower()]
    return Days(today - timedelta(days=days * _count(match)), today)


def _step(match: re.Match[str]) -> int:
    return {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1}[match["which"].lower()]


def _unit(match: re.Match[str], today: date | None) -> Days | None:
    if today is None:
        return None
    step = _step(match)
    unit = match["unit"].lower()
    if unit == "month":
        return _months(today.year, today.month + step, 1)
    if unit == "year":
        return _months(today.year + step, 1, 12)
    week = _week(today + timedelta(weeks=step))
    return Days(week.last - timedelta(days=1), week.last) if unit == "weekend" else week


def _weekday(match: re.Match[str], today: date | None) -> Days | None:
    """`last Monday` and `on Monday`: the latest one before today; `this` and `next`: the one of that week."""
    if today is None:
        return None
    wanted = _WEEKDAYS.index(match["weekday"].lower())
    which = (match["which"] or "last").lower()
    if which in {"this", "next"}:
        return _one(_week(today + timedelta(weeks=which == "next")).first + timedelta(days=wanted))
    return _one(today - timedelta(days=(today.weekday() - wanted - 1) % 7 + 1))


def _last_named(match: re.Match[str], today: date | None) -> Days | None:
    """A month or season without its year: the latest that has begun; after `last`, that is over."""
    if today is None:
        return None
    groups = match.groupdict()
    month = _MONTHS[groups["month"].lower()] if groups.get("month") else _SEASONS[groups["season"].lower()]
    count = 1 if groups.get("month") else 3
    days = _months(today.year, month, count)
    if (groups.get("which") or "").lower() == "next":
        return days if days.first > today else _months(today.year + 1, month, count)
    over = (groups.get("which") or "").lower() in {"last", "past", "previous"}
    while days.first > today or (over and days.last >= today):
        days = _months(days.first.year - 1, month, count)
    return days


_UNIT = "(?P<unit>day|week|month|year)s?"
_WHICH = "(?P<which>last|past|previous|this|current|next)"

_RELATIVE = _compiled(
    (r"(?:the\s+)?day before yesterday", _shifted(-2)),
    (r"yesterday|last night", _shifted(-1)),
    (r"today|tonight|this morning|this afternoon|this evening", _shifted(0)),
    (r"tomorrow", _shifted(1)),
    (rf"{_COUNT}\s+{_UNIT}\s+ago", _ago),
    (rf"(?:last|past|previous)\s+{_COUNT}\s+{_UNIT}", _past),
    (rf"{_WHICH}\s+(?P<unit>weekend|week|month|year)", _unit),
    (rf"(?:{_WHICH}|on)\s+{_WEEKDAY}", _weekday),
    (rf"{_WHICH}\s+{_MONTH}", _last_named),
    (rf"{_WHICH}\s+{_SEASON}", _last_named),
    (rf"{_IN}(?P<at>{_MONTH})", _last_named),
)
