import pytest

from core.search.tokens import tokens


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # memory-agent.md, appendix
        ("2023/05/20 (Sat) 02:21", ["2023", "05", "20", "sat", "02:21"]),
        ("Café naïve: don't RE-check A_B:c x--y", ["caf", "na", "ve", "don", "t", "re-check", "a_b:c", "x", "y"]),
        ("北岸书屋 G8642", ["g8642", "北岸", "岸书", "书屋"]),
        ("第3章 review", ["3", "review", "第", "章"]),
        ("猫", ["猫"]),
        ("ねこ 고양이", []),
        # joins
        ("a-b_c:d", ["a-b_c:d"]),
        ("-a- a_-b :c", ["a", "a", "b", "c"]),
        ("a-é", ["a"]),
        # lower case that yields ASCII: the Kelvin sign, and the dotted capital I (i and a combining dot)
        ("300\u212a", ["300k"]),
        ("\u0130stanbul", ["i", "stanbul"]),
        ("Å ſ ß ﬁ ＡＢ ①", []),
        # Han: iteration mark, numerals, compatibility, beyond U+FFFF; kana and punctuation end a run
        ("人々", ["人々"]),
        ("〇一", ["〇一"]),
        ("書く本", ["書", "本"]),
        ("书,屋。门", ["书", "屋", "门"]),
        ("\U00020000", ["\U00020000"]),
        ("\U00020000\U0002f800\U0003134a", ["\U00020000\U0002f800", "\U0002f800\U0003134a"]),
        ("ー・々", ["々"]),
        ("", []),
        ("!?… 😀", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_latin_tokens_come_first_and_repeat() -> None:
    assert tokens("猫 cat 猫 cat") == ["cat", "cat", "猫", "猫"]


def test_no_other_character_lowers_to_a_latin_letter() -> None:
    """JavaScript's and Python's lower case agree for these; a third one would be a difference to look at."""
    found = [
        c for c in map(chr, range(128, 0x110000)) if not 0xD800 <= ord(c) <= 0xDFFF and tokens(c + " ") and c < "\u2e80"
    ]
    assert found == ["\u0130", "\u212a"]


def test_han_is_the_script_of_unicode_17() -> None:
    han = sum(bool(tokens(chr(c))) for c in range(0x2E80, 0x110000) if not 0xD800 <= c <= 0xDFFF)
    assert han == 103_351
