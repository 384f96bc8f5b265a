"""Dates that a question names, and how far a record is from them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.search.temporal import SPANS, Span, distance, reference, spans, split_dateline

NOW = datetime(2023, 5, 25, 10, tzinfo=UTC)  # a Thursday


def day(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("What happened on 7 May 2023?", "2023-05-07", "2023-05-08"),
        ("on the 7th of May, 2023", "2023-05-07", "2023-05-08"),
        ("May 7th, 2023", "2023-05-07", "2023-05-08"),
        ("on 2023-05-07", "2023-05-07", "2023-05-08"),
        ("at 2023/5/7", "2023-05-07", "2023-05-08"),
        ("2023-05-07T13:56:00Z", "2023-05-07", "2023-05-08"),
        ("in 2023-05", "2023-05-01", "2023-06-01"),
        ("during May 2022", "2022-05-01", "2022-06-01"),
        ("Sept. 2022", "2022-09-01", "2022-10-01"),
        ("in 2022", "2022-01-01", "2023-01-01"),
        ("in the summer of 2022", "2022-06-01", "2022-09-01"),
        ("winter 2022", "2022-12-01", "2023-03-01"),
        ("Q4 2022", "2022-10-01", "2023-01-01"),
        ("2023年5月7日发生了什么", "2023-05-07", "2023-05-08"),
        ("2023年5月", "2023-05-01", "2023-06-01"),
        ("2023年", "2023-01-01", "2024-01-01"),
        # without a year: the latest that has begun
        ("on May 7", "2023-05-07", "2023-05-08"),
        ("on 30 May", "2022-05-30", "2022-05-31"),
        ("Feb 29", "2020-02-29", "2020-03-01"),
        ("in May", "2023-05-01", "2023-06-01"),
        ("in June", "2022-06-01", "2022-07-01"),
        # relative to the moment
        ("today", "2023-05-25", "2023-05-26"),
        ("yesterday", "2023-05-24", "2023-05-25"),
        ("the day before yesterday", "2023-05-23", "2023-05-24"),
        ("tomorrow", "2023-05-26", "2023-05-27"),
        ("three days ago", "2023-05-22", "2023-05-23"),
        ("a couple of days ago", "2023-05-23", "2023-05-24"),
        ("two weeks ago", "2023-05-08", "2023-05-15"),
        ("5 months ago", "2022-12-01", "2023-01-01"),
        ("a year ago", "2022-01-01", "2023-01-01"),
        ("last week", "2023-05-15", "2023-05-22"),
        ("this weekend", "2023-05-27", "2023-05-29"),
        ("next month", "2023-06-01", "2023-07-01"),
        ("the last 3 weeks", "2023-05-04", "2023-05-26"),
        ("last Thursday", "2023-05-18", "2023-05-19"),
        ("on Wednesday", "2023-05-24", "2023-05-25"),
        ("next Monday", "2023-05-29", "2023-05-30"),
        ("this Saturday", "2023-05-27", "2023-05-28"),
        ("last May", "2022-05-01", "2022-06-01"),
        ("next May", "2024-05-01", "2024-06-01"),
        ("last summer", "2022-06-01", "2022-09-01"),
        # ranges and open ranges
        ("between May 1, 2022 and June 2022", "2022-05-01", "2022-07-01"),
        ("from 2020 to 2021", "2020-01-01", "2022-01-01"),
        ("from June 2022 until last week", "2022-06-01", "2023-05-22"),
        ("before March 2022", None, "2022-03-01"),
        ("until yesterday", None, "2023-05-24"),
        ("after 7 May 2023", "2023-05-08", None),
        ("since last year", "2022-01-01", None),
        ("9999-12-31", "9999-12-31", None),
    ],
)  # fmt: skip
def test_what_a_question_names(question: str, start: str | None, end: str | None) -> None:
    assert spans(question, NOW) == [Span(day(start), day(end))]


@pytest.mark.parametrize(
    "question",
    ["", "May I ask?", "I may 3 times", "She has 2000 books", "version 2.1.2023", "31 foo 2022", "call 2023-99-99",
     "the second last", "on mondays"],
)  # fmt: skip
def test_what_names_no_date(question: str) -> None:
    assert spans(question, NOW) == []


def test_several_dates_each_once_in_order() -> None:
    named = spans("Was it yesterday, in 2021, or yesterday?", NOW)
    assert [span.start for span in named] == [day("2023-05-24"), day("2021-01-01")]
    assert len(spans(", ".join(f"in {year}" for year in range(1990, 2020)), NOW)) == SPANS


def test_the_moment_that_relative_dates_count_from() -> None:
    dated = "Current date: 2023/05/30 (Tue) 10:00\nWhat did I do yesterday?"
    assert split_dateline(dated) == ("What did I do yesterday?", "2023/05/30 (Tue) 10:00")
    assert spans(dated, reference(dated, [], NOW)) == [Span(day("2023-05-29"), day("2023-05-30"))]
    recent = ["It is 1 June 2023.", "On 3 May 2023 and on 2 May 2023 it rained."]
    assert reference("yesterday", recent, NOW).date() == datetime(2023, 5, 3, tzinfo=UTC).date()
    assert reference("yesterday", ["1 June 2023", "no date in May here"], NOW) == NOW


def test_a_dateline_needs_its_colon_close_by() -> None:
    assert split_dateline("Date night with Ann was where exactly: home?")[1] == ""
    assert split_dateline("time: noon\n") == ("", "noon")


def test_distance() -> None:
    closed, before, after = (
        Span(day("2023-05-01"), day("2023-05-03")),
        Span(None, day("2023-05-01")),
        Span(day("2023-05-03"), None),
    )
    hour = 3600.0
    assert closed.distance(datetime(2023, 5, 1, 1, tzinfo=UTC)) == (0, hour)
    assert closed.distance(datetime(2023, 4, 30, 23, tzinfo=UTC)) == (hour, hour)
    assert closed.distance(datetime(2023, 5, 3, 1, tzinfo=UTC)) == (hour + 1e-6, 49 * hour)
    assert closed.distance(datetime(2023, 5, 3, tzinfo=UTC))[0] > 0
    assert before.distance(datetime(2023, 4, 30, 23, tzinfo=UTC)) == (0, hour)
    assert after.distance(datetime(2023, 5, 3, 2, tzinfo=UTC)) == (0, 2 * hour)
    assert distance(datetime(2023, 5, 3, 2, tzinfo=UTC), [closed, after]) == (0, 2 * hour)


@given(st.text(max_size=80), st.datetimes(timezones=st.just(UTC)))
def test_any_text_at_any_time_gives_spans_in_order(text: str, moment: datetime) -> None:
    for span in spans(text, moment):
        assert span.start is None or span.end is None or span.start < span.end


VAGUE = (
    "last this next on in may May 31 February 0 99 999 2024 1900 weeks ago year since before from to and the Q4 winter "
    "9999-12-31 yesterday"
)


@given(
    st.lists(st.sampled_from(VAGUE.split()), max_size=12),
    st.sampled_from([datetime(1, 1, 1, tzinfo=UTC), NOW, datetime(9999, 12, 31, tzinfo=UTC)]),
)
def test_words_of_time_in_any_order_raise_nothing(words: list[str], moment: datetime) -> None:
    spans(" ".join(words), moment)
