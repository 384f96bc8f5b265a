import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from core.logarithm import log
from core.search.bm25 import rank
from core.search.tokens import tokens

WORD = st.sampled_from(["cat", "dog", "sat", "02:21", "re-check", "书屋", "猫", "Ä", "x", "😀", "the"])
TEXT = st.lists(WORD, max_size=12).map(" ".join)
DOCUMENTS = st.dictionaries(st.text("ab-1_B", min_size=1, max_size=4), TEXT, max_size=12)
ANY = st.text(st.characters(exclude_categories=["Cs"]))


def literal(query: str, documents: dict[str, str]) -> list[tuple[str, float]]:
    """The formula of memory-agent.md §2.2, one document and term after the other."""
    found = {key: tokens(text) for key, text in documents.items()}
    scores: dict[str, float] = {}
    for key, own in found.items():
        average = sum(map(len, found.values())) / len(found)
        score = 0.0
        for term in dict.fromkeys(tokens(query)):
            tf = own.count(term)
            if tf == 0:
                continue
            df = sum(term in other for other in found.values())
            idf = log(1 + (len(found) - df + 0.5) / (df + 0.5))
            score += 1 * idf * (tf * 2.2) / (tf + 1.2 * (0.25 + 0.75 * len(own) / average))
        if score > 0:
            scores[key] = score
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))


@given(TEXT, DOCUMENTS)
def test_to_the_last_bit_as_the_formula(query: str, documents: dict[str, str]) -> None:
    assert rank(query, documents.items()) == literal(query, documents)


@given(TEXT, DOCUMENTS)
def test_finds_exactly_what_shares_a_token(query: str, documents: dict[str, str]) -> None:
    asked = set(tokens(query))
    assert {key for key, _ in rank(query, documents.items())} == {
        key for key, text in documents.items() if asked & set(tokens(text))
    }


@given(ANY, ANY)
def test_any_unicode_can_be_asked_and_searched(query: str, text: str) -> None:
    for _, score in rank(query, [("a", text), ("b", text + " x"), ("c", "")]):
        assert score > 0


@given(ANY)
def test_tokens_do_not_change_with_case_or_space_around(text: str) -> None:
    assert tokens(f" {text}\n") == tokens(text)
    assert tokens(text.lower()) == tokens(text)
    assert all(re.fullmatch("[a-z0-9]+([-_:][a-z0-9]+)*", token) or not token.isascii() for token in tokens(text))


@given(ANY, ANY)
def test_tokens_of_two_texts_apart_are_those_of_each(one: str, other: str) -> None:
    assert Counter(tokens(f"{one} | {other}")) == Counter(tokens(one)) + Counter(tokens(other))
