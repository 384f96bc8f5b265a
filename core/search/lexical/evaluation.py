"""Scores of a collection, bit for bit those of core/search/bm25.py, and the best of them.

The frozen order of operations is kept: idf·(tf·2.2) divided by (tf + 1.2·(0.25 + (0.75·length)/average)), added term by term
in the order of first appearance. numpy does the same single operations in doubles. Adding 0.0 for a document without the term
changes nothing, so a common term's part may be an array over all documents. No sum, dot or logarithm of numpy is used.

What a term adds depends on the collection's statistics, but not on the other terms: it is computed once a collection and kept
(`Gain`). A search of a store that has not changed only adds arrays up.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.search.bm25 import idf
from core.search.lexical.postings import Ints
from core.search.selection import highest

Floats = NDArray[np.float64]
Places = NDArray[np.uint32]
Frequencies = NDArray[np.unsignedinteger[Any]]
Names = Callable[[Ints], NDArray[np.bytes_]]
"""The ids of these record numbers."""

CHUNK = 16_384
"""Arrays of this length stay in the processor's cache, and in memory that is there already."""
COMMON = 4
"""A term that more than one in four records hold has its gains as an array over all records."""
TERM_BYTES = 400
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Filtered:
    """The collection that is searched: the records below `end` that the caller sees. Statistics are its own.

    `visible` is None when all are seen and none is erased, `mask` when all are seen that are not erased. `norms` is the part
    of a score's divisor that depends on a record's length."""

    end: int
    count: int
    total: int
    visible: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None
    lengths: NDArray[np.int32]
    norms: Floats

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0

    @staticmethod
    def of(lengths: NDArray[np.int32], seen: NDArray[np.bool_], there: NDArray[np.bool_]) -> "Filtered":
        """`there`: not erased. An erased record is in no posting and has length 0, so only the count must leave it out."""
        visible = seen & there
        count = int(np.count_nonzero(visible))
        all_seen = count == int(np.count_nonzero(there))
        total = int(lengths.sum(dtype=np.int64)) if all_seen else int(lengths[visible].sum(dtype=np.int64))
        norms = np.zeros(0)
        if total:
            norms = 1.2 * (0.25 + 0.75 * np.arange(int(lengths.max()) + 1, dtype=np.float64) / (total / count))
        return Filtered(
            len(lengths), count, total, None if count == len(lengths) else visible, None if all_seen else visible, lengths,
            norms,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gain:
    """What a term adds to the scores of a collection, where `holders` records hold it. `values[i]` is for record
    `numbers[i]`; without numbers, for record i."""

    holders: int
    numbers: Ints | None
    values: Floats

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.numbers is None else self.numbers.nbytes)

    @staticmethod
    def of(collection: Filtered, numbers: Places, frequencies: Frequencies) -> "Gain":
        """`numbers`, ascending, hold the term that often; those outside the collection are left out."""
        if len(numbers) and numbers[-1] >= collection.end:
            below = int(np.searchsorted(numbers, collection.end))
            numbers, frequencies = numbers[:below], frequencies[:below]
        if collection.mask is not None:
            seen = collection.mask.take(numbers)
            numbers, frequencies = numbers[seen], frequencies[seen]
        holders = len(numbers)
        if not holders:
            return Gain(0, _NONE, np.empty(0))
        factors = _FACTORS if frequencies.dtype == np.uint8 else _factors(int(frequencies.max()))
        weighted = idf(collection.count, holders) * factors
        if holders * COMMON <= collection.end:
            places = numbers.astype(np.int64)
            values = np.empty(holders)
            for start in range(0, holders, CHUNK):
                some = slice(start, start + CHUNK)
                values[some] = _gains(collection, weighted, places[some], frequencies[some])
            return Gain(holders, places, values)
        values = np.zeros(collection.end)
        for start in range(0, holders, CHUNK):
            places = numbers[start : start + CHUNK].astype(np.int64)
            values[places] = _gains(collection, weighted, places, frequencies[start : start + CHUNK])
        return Gain(holders, None, values)


def _gains(collection: Filtered, weighted: Floats, places: Ints, frequencies: Frequencies) -> Floats:
    divisors = collection.norms.take(collection.lengths.take(places))
    divisors += frequencies
    return np.divide(weighted.take(frequencies), divisors, out=divisors)


def _factors(largest: int) -> Floats:
    """tf·2.2 for the frequencies up to the largest."""
    return np.arange(largest + 1, dtype=np.float64) * 2.2


_FACTORS = _factors(255)


class Term:
    """Where a term occurs among the records below `upto`: `numbers`, ascending, and how often in each. Remembers its gain in
    the collection that was searched last. Used under its store's lock."""

    __slots__ = ("_collection", "_gain", "frequencies", "numbers", "upto")

    def __init__(self, upto: int, numbers: Places, frequencies: Frequencies) -> None:
        self.upto = upto
        self.numbers = numbers
        self.frequencies = frequencies
        self._collection: Filtered | None = None
        self._gain: Gain | None = None

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        kept = 0 if self._gain is None else self._gain.nbytes
        return self.numbers.nbytes + self.frequencies.nbytes + kept + TERM_BYTES

    def gain(self, collection: Filtered, later: "Term | None" = None) -> Gain:
        """`later`: more of the term's postings, all behind these; the same ones whenever it is the same collection."""
        if self._gain is None or self._collection is not collection:
            numbers, frequencies = self.numbers, self.frequencies
            if later is not None:
                numbers = np.concatenate([numbers, later.numbers])
                frequencies = np.concatenate([frequencies, later.frequencies])
            self._collection, self._gain = collection, Gain.of(collection, numbers, frequencies)
        return self._gain


def evaluate(end: int, gains: Iterable[Gain]) -> Floats:
    """By record number: the sum of what each term adds, in their order; 0 where nothing matches or is not seen."""
    scores = np.zeros(end)
    for gain in gains:
        if gain.numbers is None:
            scores += gain.values
        elif gain.holders:
            np.add.at(scores, gain.numbers, gain.values)
    return scores


def best(scores: Floats, limit: int | None, names: Names) -> tuple[Ints, Floats]:
    """Numbers and scores of the `limit` best (None: all) that score above 0; equal scores in code-point order of ids, which
    are asked for only then."""
    numbers = highest(scores, limit or 0, above=0.0)
    values = scores[numbers]
    order = np.argsort(-values, kind="stable")
    numbers, values = numbers[order], values[order]
    if np.any(values[1:] == values[:-1]):
        order = np.lexsort((names(numbers), -values))
        numbers, values = numbers[order], values[order]
    return (numbers, values) if limit is None else (numbers[:limit], values[:limit])
