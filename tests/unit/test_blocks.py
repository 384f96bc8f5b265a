import pytest

from core.records.blocks import Span, split
from tests.fakes.corpus import TEXTS


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_text_comes_back(text: str) -> None:
    whole = text.encode()
    spans = split(text)
    assert "".join(span.text for span in spans) == text
    assert all(whole[span.start : span.end] == span.text.encode() for span in spans)
    assert all(0 < len(span.text) <= 600 for span in spans)


def test_a_short_text_is_one_block() -> None:
    assert split("é" * 600) == [Span(0, 1200, "é" * 600)]
    assert split("") == []


def test_blocks_end_after_the_last_space_that_fits() -> None:
    text = "a" * 300 + " " + "b" * 298 + " " + "c" * 10
    assert [len(span.text) for span in split(text)] == [600, 10]
    text = "a" * 300 + " " + "b" * 299 + " " + "c" * 10
    assert [len(span.text) for span in split(text)] == [301, 310]
    text = "a" * 300 + "\u3000\n" + "b" * 400
    assert [len(span.text) for span in split(text)] == [302, 400]


def test_a_word_too_long_is_cut_between_code_points() -> None:
    assert [span.text for span in split("😀" * 601)] == ["😀" * 600, "😀"]
    assert [(span.start, span.end) for span in split("😀" * 601)] == [(0, 2400), (2400, 2404)]
