from decimal import Context, Decimal

import pytest

from core.jsontext import canonical
from core.search import bm25
from core.search.bm25 import query_terms, rank, searchable_text

DOCUMENTS = [("a", "The cat sat."), ("b", "the dog sat down"), ("c", "cat cat 书屋关门")]
CAT_SAT = [("a", 1.0470966930031578), ("c", 0.6038002828266384), ("b", 0.4700036292457355)]


def test_the_published_vectors_to_the_last_bit() -> None:
    assert rank("cat sat", DOCUMENTS) == CAT_SAT
    assert rank("书屋", DOCUMENTS) == [("c", 0.8898244769590922)]


def test_an_exact_logarithm_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library's is nearly always the rounded exact value: it gives this score another last bit."""
    documents = [("a", "one"), ("b", "two"), ("c", "two")]
    ours = rank("one", documents)
    monkeypatch.setattr(bm25, "log", lambda x: float(Context(prec=40).ln(Decimal(x))))
    exact = rank("one", documents)
    assert dict(exact) == pytest.approx(dict(ours))
    assert exact != ours


def test_order_of_the_documents_does_not_matter() -> None:
    assert rank("cat sat", reversed(DOCUMENTS)) == CAT_SAT


def test_terms_count_once_in_order_of_first_appearance() -> None:
    assert query_terms("Sat CAT sat 书屋 cat") == ["sat", "cat", "书屋"]
    assert rank("cat sat cat", DOCUMENTS) == CAT_SAT


def test_the_order_of_summation_can_be_seen() -> None:
    documents = [(str(n), " ".join(f"w{n * k % 23}" for k in range(1, 30))) for n in range(40)]
    words = [f"w{n}" for n in range(23)]
    forward, backward = rank(" ".join(words), documents), rank(" ".join(reversed(words)), documents)
    assert {key for key, _ in forward} == {key for key, _ in backward}
    assert dict(forward) != dict(backward)  # in the last bits
    assert dict(forward) == pytest.approx(dict(backward))


def test_ties_are_in_code_point_order() -> None:
    ids = ["note_1", "note-1", "Note-1", "note-10", "note-2", "b-1", "B-1", "😀", "\uffff"]
    assert [key for key, _ in rank("x", [(key, "x") for key in ids])] == sorted(ids)


def test_documents_without_a_shared_token_are_left_out() -> None:
    assert rank("zebra", DOCUMENTS) == []
    assert rank("", DOCUMENTS) == []
    assert rank("ねこ", DOCUMENTS) == []
    assert rank("cat", []) == []
    assert rank("cat", [("a", ""), ("b", "…")]) == []


def test_empty_documents_count() -> None:
    assert rank("cat", [*DOCUMENTS, ("d", "")]) != rank("cat", DOCUMENTS)


def test_a_word_in_every_document_still_scores() -> None:
    assert [score > 0 for _, score in rank("x", [("a", "x"), ("b", "x x")])] == [True, True]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("x" * 996 + " abcdefgh", ["x" * 996, "abc"]),
        ("😀" * 498 + " abcdefgh", ["abc"]),  # 996 units
        ("\u0130" * 498 + " abcdefgh", ["i", "abc"]),  # lower case makes two units of each
    ],
)
def test_a_query_is_lowered_then_cut_at_1000_units(query: str, terms: list[str]) -> None:
    assert query_terms(query) == terms


def test_searchable_text() -> None:
    data = {"session": "s-1", "eventAt": "2026-03-01T09:30:00.000Z"}
    record = {"title": "T", "content": "one\ntwo", "data": data, "id": "unseen"}
    assert searchable_text(record) == f"T\none\ntwo\n{canonical(data)}"
    assert searchable_text({"title": "T", "content": ""}) == "T\n\n{}"
