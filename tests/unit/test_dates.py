from datetime import UTC, datetime

import pytest

from core.records import dates


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-03-01T09:30:00Z", "2026-03-01T09:30:00+00:00"),
        ("2026-03-01t09:30:00z", "2026-03-01T09:30:00+00:00"),
        ("2026-03-01 09:30:00+00:00", "2026-03-01T09:30:00+00:00"),
        ("2026-03-01T09:30:00.5-07:30", "2026-03-01T17:00:00.500000+00:00"),
        ("2026-03-01T00:30:00.123456789+02:00", "2026-02-28T22:30:00.123456+00:00"),
        ("2024-02-29T12:00:00-00:00", "2024-02-29T12:00:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999000+00:00"),
    ],
)
def test_rfc3339(text: str, iso: str) -> None:
    assert dates.parse(text).isoformat() == iso
    assert dates.parse_loosely(text) == dates.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-03-01T09:30:00", "no offset"),
        ("2026-03-01 09:30:00.25", "no offset"),
        ("2026-03-01", "RFC 3339"),
        ("20260301T093000Z", "RFC 3339"),
        ("2026-W09-7T09:30:00Z", "RFC 3339"),
        ("2026-03-01T09:30Z", "RFC 3339"),
        ("2026-03-01T09:30:00+0200", "RFC 3339"),
        ("2026-03-01T09:30:00+24:00", "RFC 3339"),
        ("2026-03-01T09:30:00Z\n", "RFC 3339"),
        (" 2026-03-01T09:30:00Z", "RFC 3339"),
        ("٢٠٢٦-03-01T09:30:00Z", "RFC 3339"),
        ("", "RFC 3339"),
        ("2026-02-29T09:30:00Z", "real date"),
        ("2026-13-01T09:30:00Z", "real date"),
        ("2026-03-01T24:00:00Z", "real date"),
        ("2016-12-31T23:59:60Z", "real date"),
        ("0000-01-01T00:00:00Z", "real date"),
        ("0001-01-01T00:00:00+01:00", "real date"),
        ("9999-12-31T23:59:59-01:00", "real date"),
    ],
)
def test_what_is_refused_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        dates.parse(text)


def test_days_are_midnight_utc() -> None:
    assert dates.parse_loosely("2026-03-01") == datetime(2026, 3, 1, tzinfo=UTC)
    assert dates.parse_loosely("2026-02-29") is None
    assert dates.parse_loosely("yesterday") is None
    assert dates.parse_loosely("2026-03-01T09:30:00") is None


def test_heading_dates() -> None:
    assert dates.heading_date(dates.parse("2023-05-20T02:21:59Z")) == "2023/05/20 (Sat) 02:21"
    assert dates.heading_date(dates.parse("0023-01-01T00:00:00Z")) == "0023/01/01 (Sun) 00:00"


def test_milliseconds_are_cut_not_rounded() -> None:
    assert dates.to_milliseconds(dates.parse("2026-03-01T09:30:00.9999Z")).microsecond == 999_000
