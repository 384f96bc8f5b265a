"""Version 2's analyser on any Unicode text."""

from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.search.analysis import WORD_POINTS, analyse

ANY = st.text(st.characters(exclude_categories=()), max_size=200)  # lone surrogates too


@given(ANY)
def test_any_text_has_terms_that_can_be_stored(text: str) -> None:
    for term in analyse(text, 2):
        assert 1 <= len(term) <= WORD_POINTS
        assert not any(point.isspace() or point == "\0" for point in term)
        term.encode()


@given(ANY)
def test_case_does_not_matter_and_answers_do_not_change(text: str) -> None:
    assert analyse(text.lower(), 2) == analyse(text, 2) == analyse(text, 2)


@given(ANY, ANY)
def test_texts_apart_are_analysed_apart(one: str, other: str) -> None:
    assert analyse(f"{one}\n{other}", 2) == analyse(one, 2) + analyse(other, 2)


@pytest.mark.parametrize(
    "unit", ["a", "ab ", "é ", "a\u0301\u0316", "漢", "ก\u0e49\u0e38", "한", "\u0316\u0301", "क्", "ﷺ", "_", "a_"]
)
def test_time_is_linear(unit: str) -> None:
    started = monotonic()
    analyse(unit * (1_000_000 // len(unit)), 2)
    assert monotonic() - started < 30  # in the square of the length it would be hours
