"""The best of many scores, without sorting them."""

import numpy as np
from numpy.typing import NDArray

SETS = 256


def highest(scores: NDArray[np.floating], k: int, above: float = -np.inf) -> NDArray[np.int64]:
    """Where the `k` best scores are, with all that equal the last of them, in order of place; none that is not greater than
    `above`. All that are, for a `k` of 0 or at least as many scores. No score may be NaN."""
    if not 0 < k < len(scores):
        return np.flatnonzero(scores > above)
    # The k-th largest maximum of disjoint sets is at most the k-th largest score.
    sets = max(SETS, 2 * k)
    rows = len(scores) // sets
    bound = above
    if rows > 4:
        bound = max(above, float(_kth(scores[: rows * sets].reshape(rows, sets).max(axis=0), k)))
    places = np.flatnonzero(scores >= bound) if bound > above else np.flatnonzero(scores > above)
    if len(places) > k:
        values = scores[places]
        places = places[values >= _kth(values, k)]
    return places


def _kth(scores: NDArray[np.floating], k: int) -> np.floating:
    """The k-th largest."""
    return np.partition(scores, len(scores) - k)[len(scores) - k]
