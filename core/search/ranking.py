"""The ranking of index version 2: words and meaning together, with what stands beside a chunk.

All on arrays over the records of a store: entry n is record number n. The blocks of a document have successive numbers.
The constants were chosen on one half of the data and checked on the other (deploy/docs/performance.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.search.selection import highest

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int64]

SHARE = 0.4
"""What a chunk gets of the score of each chunk beside it in its document."""
LATER_PIECE = 2.0
"""What a long message's next-best piece loses, so that one message does not fill a page. In standard deviations, as below."""
BONUS = 0.5
"""What the first record of another route gets."""
BONUS_DEPTH = 200
_BONUS_HALVED = 60
"""The record at this rank gets half of that."""
ALL = 8_192
"""Up to so many records each is ranked in full."""
CANDIDATES = 1_024
"""Beyond: those with the best scores of their own, and what stands beside them. At least the limit of a search."""


_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Places:
    """Where records stand. `ordinals`: in their documents; `pieces`: of long messages (core/search/analysis.py, `piece`)."""

    ordinals: NDArray[Any]
    pieces: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Best first; the scores fall."""

    numbers: Numbers
    scores: Floats


def rank(
    lexical: Floats,
    cosines: NDArray[Any] | None,
    places: Places,
    limit: int,
    *,
    visible: Mask | None = None,
    others: Sequence[Numbers] = (),
) -> Ranked:
    """The `limit` (at most 1,024) best records of the `visible` ones (None: all); equal ones by number.

    `lexical`: BM25 scores, 0 where nothing matches or a record is not visible. `cosines`: NaN where there is no vector, and
    however long; None: no embedder, then only records are found that match, stand beside a match, or that `others` found.
    `others`: more routes' record numbers, best first.
    """
    count = len(lexical) if visible is None else int(np.count_nonzero(visible))
    if not count or limit < 1:
        return Ranked(np.empty(0, np.int64), np.empty(0))
    own = _standard(lexical, count)
    if cosines is not None:
        _add_cosines(own, cosines, visible)
    named = np.zeros(len(lexical), np.bool_)
    for numbers in others:
        known = numbers[:BONUS_DEPTH]
        own[known] += BONUS * _BONUS_HALVED / (_BONUS_HALVED + np.arange(len(known)))
        named[known] = True
    numbers = _candidates(own, visible, places)
    before, behind = _beside(numbers, places)
    if cosines is None:
        named |= lexical > 0
        touched = named[numbers] | (before >= 0) & named[before] | (behind >= 0) & named[behind]
        numbers, before, behind = numbers[touched], before[touched], behind[touched]
    scores = own[numbers] + SHARE * (np.where(before < 0, 0.0, own[before]) + np.where(behind < 0, 0.0, own[behind]))
    return _best(numbers, scores, places, limit)


def _standard(values: NDArray[Any], count: int) -> Floats:
    """In standard deviations from the mean of the `count` records there are; all others have the value 0."""
    mean = float(values.sum(dtype=np.float64)) / count
    variance = float(np.dot(values, values)) / count - mean * mean
    if variance < _LEAST_VARIANCE:
        return np.zeros(len(values))
    return (values - mean) * (1 / math.sqrt(variance))


def _add_cosines(own: Floats, cosines: NDArray[Any], visible: Mask | None) -> None:
    """A record without a vector is taken for an average one."""
    if visible is None and len(cosines) >= len(own):
        cosines = cosines[: len(own)]
        if math.isfinite(cosines.sum()):
            own += _standard(cosines, len(own))
            return
    similar = np.full(len(own), np.nan)
    reach = min(len(own), len(cosines))
    similar[:reach] = cosines[:reach]
    known = ~np.isnan(similar)
    if visible is not None:
        known &= visible
    count = int(np.count_nonzero(known))
    if count:
        similar[~known] = 0.0
        standard = _standard(similar, count)
        standard[~known] = 0.0
        own += standard


def _candidates(own: Floats, visible: Mask | None, places: Places) -> Numbers:
    if visible is not None:
        own = np.where(visible, own, -np.inf)
    if len(own) <= ALL:
        return np.flatnonzero(own > -np.inf)
    best = highest(own, CANDIDATES)
    if len(best) > CANDIDATES:  # many copies of one text: not all of them
        last = own[best] == own[best].min()
        best = np.concatenate([best[~last], best[last][:CANDIDATES]])
    chosen = np.zeros(len(own), np.bool_)
    chosen[best] = True
    for beside in _beside(best, places):
        chosen[beside[beside >= 0]] = True
    return np.flatnonzero(chosen if visible is None else chosen & visible)


def _beside(numbers: Numbers, places: Places) -> tuple[Numbers, Numbers]:
    """The chunks before and behind each in its document, −1 for none. A piece of a long message has none: what stands beside
    it is mostly more of the same."""
    plain = places.pieces[numbers] == 0
    before = np.where(plain & (places.ordinals[numbers] > 0), numbers - 1, -1)
    next_one = np.minimum(numbers + 1, len(places.ordinals) - 1)
    behind = np.where(plain & (places.ordinals[next_one] > 0) & (next_one > numbers), next_one, -1)
    return before, behind


def _best(numbers: Numbers, scores: Floats, places: Places, limit: int) -> Ranked:
    """The second-best piece of a long message loses LATER_PIECE, the third twice that, and so on."""
    long = np.flatnonzero(places.pieces[numbers] > 0)
    if len(long):
        long = long[np.argsort(-scores[long], kind="stable")]
        beginnings = np.flatnonzero((places.pieces != 2) | (places.ordinals == 0))
        scores[long] -= LATER_PIECE * _earlier(np.searchsorted(beginnings, numbers[long], "right"))
    order = np.argsort(-scores, kind="stable")[:limit]
    return Ranked(numbers[order], scores[order])


def _earlier(values: Numbers) -> Numbers:
    """How many equal values come before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
    counts = np.empty(len(values), np.int64)
    counts[order] = np.arange(len(values)) - np.repeat(starts, np.diff(starts, append=len(values)))
    return counts
