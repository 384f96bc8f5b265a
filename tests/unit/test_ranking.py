"""The ranking of version 2, on small stores of which the right order can be said."""

import numpy as np
import pytest

from core.search import ranking
from core.search.ranking import Places, rank


def _places(*documents: int, pieces: dict[int, int] | None = None) -> Places:
    """Documents of so many blocks."""
    ordinals = np.concatenate([np.arange(blocks) for blocks in documents])
    own = np.zeros(len(ordinals), np.uint8)
    for number, value in (pieces or {}).items():
        own[number] = value
    return Places(ordinals, own)


def _floats(*values: float) -> ranking.Floats:
    return np.array(values, np.float64)


def test_nothing_is_found_where_nothing_matches() -> None:
    assert rank(_floats(0, 0, 0), None, _places(1, 1, 1), 10).numbers.tolist() == []
    assert rank(_floats(), None, Places(np.empty(0, int), np.empty(0, int)), 10).numbers.tolist() == []


def test_words_alone_rank_what_matches() -> None:
    found = rank(_floats(1, 0, 3, 0, 2), None, _places(1, 1, 1, 1, 1), 10)
    assert found.numbers.tolist() == [2, 4, 0]
    assert (np.diff(found.scores) < 0).all()


def test_what_stands_beside_a_match_is_found_in_the_same_document_only() -> None:
    found = rank(_floats(0, 5, 0, 0, 0), None, _places(3, 2), 10)
    assert found.numbers.tolist() == [1, 0, 2]


def test_a_neighbour_lifts_a_match() -> None:
    found = rank(_floats(4, 0, 0, 4, 3, 0, 0), None, _places(1, 1, 1, 2, 1, 1), 10)
    assert found.numbers.tolist() == [3, 0, 4]


def test_meaning_and_words_count_alike() -> None:
    lexical = _floats(9, 0, 0, 0)
    cosines = np.array([0.1, 0.9, 0.1, 0.1], np.float32)
    found = rank(lexical, cosines, _places(1, 1, 1, 1), 10)
    assert set(found.numbers.tolist()[:2]) == {0, 1}
    assert found.scores[0] == pytest.approx(found.scores[1])  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("cosines", [np.array([np.nan, 0.5, 0.1]), np.array([], np.float32), np.array([np.nan] * 3)])
def test_records_without_a_vector_are_ranked_by_their_words(cosines: np.ndarray) -> None:
    found = rank(_floats(9, 0, 0), cosines, _places(1, 1, 1), 3)
    assert found.numbers[0] == 0
    assert np.isfinite(found.scores).all()


def test_invisible_records_are_never_found() -> None:
    visible = np.array([False, True, True, False])
    cosines = np.array([0.9, 0.2, 0.2, 0.9, 0.9], np.float32)
    assert rank(_floats(0, 0, 1, 0), cosines, _places(4), 10, visible=visible).numbers.tolist() == [2, 1]
    others = [np.array([0, 1])]
    assert rank(
        _floats(0, 0, 0, 0), None, _places(1, 1, 1, 1), 10, visible=visible, others=others
    ).numbers.tolist() == [1]


def test_one_long_message_does_not_fill_the_page() -> None:
    pieces = {0: 1, 1: 2, 2: 2}
    lexical = _floats(5.0, 5.2, 5.1, 4.0, 1.0)
    found = rank(lexical, None, _places(3, 1, 1, pieces=pieces), 10)
    assert found.numbers.tolist()[:2] == [1, 3]
    assert set(found.numbers.tolist()) == {0, 1, 2, 3, 4}


def test_long_messages_of_successive_documents_are_two() -> None:
    lexical = _floats(5.0, 4.9, 1.0, 1.1, 1.2)
    found = rank(lexical, None, _places(1, 1, 1, 1, 1, pieces={0: 1, 1: 2}), 10)
    assert found.numbers.tolist()[:2] == [0, 1]


def test_another_route_brings_in_what_only_it_found() -> None:
    found = rank(_floats(3, 0, 0), None, _places(1, 1, 1), 10, others=[np.array([2])])
    assert found.numbers.tolist() == [0, 2]


def test_equal_records_come_by_number() -> None:
    assert rank(_floats(*[2.0] * 500), None, _places(*[1] * 500), 7).numbers.tolist() == list(range(7))


@pytest.mark.parametrize("with_cosines", [False, True])
def test_choosing_candidates_first_gives_the_same_page(with_cosines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.random.default_rng(7)
    count = 20_000
    lexical = np.where(chosen.random(count) < 0.3, chosen.gamma(2, 2, count), 0.0)
    cosines = chosen.normal(0.2, 0.1, count).astype(np.float32) if with_cosines else None
    pieces = np.where(chosen.random(count) < 0.3, chosen.integers(1, 3, count), 0)
    places = Places(np.arange(count) % 25, pieces)
    visible = chosen.random(count) < 0.9
    lexical[~visible] = 0
    quick = rank(lexical, cosines, places, 48, visible=visible)
    monkeypatch.setattr(ranking, "ALL", count)
    full = rank(lexical, cosines, places, 48, visible=visible)
    assert quick.numbers.tolist() == full.numbers.tolist()


def test_a_store_of_equal_records_has_a_page_too() -> None:
    count = ranking.ALL + 5
    assert len(rank(np.ones(count), None, Places(np.zeros(count), np.zeros(count)), 48).numbers) == 48
