"""The best of many scores, against a sort (core/search/selection.py)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.search.selection import highest

SIZES = st.one_of(st.integers(0, 40), st.integers(1_000, 9_000))


@given(st.data(), SIZES, st.integers(0, 300), st.sampled_from([3, 50, 10**6]), st.sampled_from([-np.inf, 0.0]))
def test_all_that_score_at_least_as_much_as_the_kth(
    data: st.DataObject, size: int, k: int, values: int, above: float
) -> None:
    """Few values make ties; some scores are −∞."""
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scores = chance.integers(-1, values, size).astype(data.draw(st.sampled_from([np.float32, np.float64])))
    scores[chance.random(size) < data.draw(st.sampled_from([0.0, 0.5, 0.99]))] = -np.inf
    shown = [score for score in scores.tolist() if score > above]
    edge = sorted(shown, reverse=True)[k - 1] if 0 < k <= len(shown) else -np.inf
    expected = [place for place, score in enumerate(scores.tolist()) if score > above and score >= edge]
    assert highest(scores, k, above).tolist() == expected


@pytest.mark.parametrize("order", [1, -1])
def test_the_best_may_all_lie_together(order: int) -> None:
    scores = np.arange(50_000, dtype=np.float32)[::order]
    found = highest(scores, 200)
    assert sorted(scores[found].tolist()) == list(range(49_800, 50_000))
