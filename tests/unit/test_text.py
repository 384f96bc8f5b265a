import json

import pytest

from core.errors import InvalidRequest
from core.text import SPACES, check_text, collapse_spaces, cut_units, points, size, trim, units
from tests.fakes.corpus import REFUSED, TEXTS


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", (0, 0, 0)), ("abc", (3, 3, 3)), ("é", (1, 1, 2)), ("书", (1, 1, 3)), ("😀", (2, 1, 4)), ("a😀b", (4, 3, 6))],
)
def test_lengths(text: str, expected: tuple[int, int, int]) -> None:
    assert (units(text), points(text), size(text)) == expected


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_units_are_utf16(text: str) -> None:
    assert units(text) == len(text.encode("utf-16-le")) // 2


def test_white_space_is_javascripts() -> None:
    assert sorted(map(ord, SPACES)) == [
        *range(0x09, 0x0E), 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "collapsed"),
    [
        ("a b", "a b"),
        ("  a \n\t b  ", "a b"),
        ("a\u00a0\ufeffb", "a b"),
        ("a \u00a0 b", "a b"),
        ("\ta", "a"),
        (" \n ", ""),
        ("a\u0085\x1cb", "a\u0085\x1cb"),  # white space to Python only
        ("\x1f a \x1f", "\x1f a \x1f"),
    ],
)
def test_collapse_spaces(text: str, collapsed: str) -> None:
    assert collapse_spaces(text) == collapsed
    assert trim(f"\ufeff{collapsed}\u2003") == collapsed


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abc", 0, ""),
        ("abc", 2, "ab"),
        ("abc", 5, "abc"),
        ("😀😀", 1, ""),
        ("😀😀", 2, "😀"),
        ("😀😀", 3, "😀"),
        ("😀😀", 4, "😀😀"),
        ("a😀b", 2, "a"),
        ("a😀b", 3, "a😀"),
        ("书书书", 2, "书书"),
    ],
)
def test_cut_units_keeps_pairs_whole(text: str, limit: int, kept: str) -> None:
    assert cut_units(text, limit) == kept


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_good_text_is_let_through(text: str) -> None:
    check_text(text, "text")


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_bad_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_text(text, "messages[3].content")
    problem = caught.value.as_json()
    assert problem["errors"] == [{"field": "messages[3].content", "message": caught.value.fields[0].message}]
    assert ("NUL" in caught.value.fields[0].message) == ("\0" in text)
    json.dumps(problem, ensure_ascii=False).encode()  # the refusal itself can be sent and stored


def test_the_refusal_says_where() -> None:
    with pytest.raises(InvalidRequest, match=r"lone surrogate \(U\+D83D\) at character 2"):
        check_text("書😀\ud83d", "text")
