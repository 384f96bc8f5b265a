"""Scores of a collection, bit for bit those of core/search/bm25.py, and the best of them.

The frozen order of operations is kept: (w·idf)·(tf·2.2) divided by (tf + 1.2·(0.25 + (0.75·length)/average)), added term by
term in the order of first appearance. numpy does the same single operations in doubles. Adding 0.0 for a document without
the term changes nothing, so a common term may be an array over all documents. No sum, dot or logarithm of numpy is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.search.bm25 import idf
from core.search.lexical.postings import Ints

Floats = NDArray[np.float64]
Frequencies = NDArray[np.uint8] | NDArray[np.uint32]

BLOCK = 64
TERM_BYTES = 400
_NONE = np.empty(0, np.int64)
_NO_FREQUENCIES = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Constants:
    """`k1` and `b` of BM25; the frozen ranking's by default."""

    k1: float = 1.2
    b: float = 0.75


FROZEN = Constants()


@dataclass(frozen=True, slots=True)
class Filtered:
    """The collection that is searched: the records below `end` that the caller sees. Statistics are its own.

    `visible` is None when all are seen and none is erased, `mask` when all are seen that are not erased. `norms[n]` is the
    part of a score's divisor that depends on record n's length, and infinite where it is not seen, so that it scores 0."""

    end: int
    count: int
    total: int
    visible: NDArray[np.bool_] | None
    mask: NDArray[np.bool_] | None
    norms: Floats
    constants: Constants
    common: Floats
    """tf·(k1 + 1) for the frequencies below 256."""

    def factors(self, largest: int) -> Floats:
        if largest < len(self.common):
            return self.common[: largest + 1]
        return _factors(largest, self.constants)

    @property
    def average(self) -> float:
        return self.total / self.count if self.count else 0.0

    @staticmethod
    def of(
        lengths: NDArray[np.int32], seen: NDArray[np.bool_], there: NDArray[np.bool_], constants: Constants
    ) -> "Filtered":
        """`there`: not erased. An erased record is in no posting and has length 0, so only the count must leave it out."""
        visible = seen & there
        count = int(np.count_nonzero(visible))
        all_seen = count == int(np.count_nonzero(there))
        total = int(lengths.sum(dtype=np.int64)) if all_seen else int(lengths[visible].sum(dtype=np.int64))
        norms = np.zeros(0)
        if total:
            average = total / count
            k1, b = constants.k1, constants.b
            table = k1 * ((1 - b) + b * np.arange(int(lengths.max()) + 1, dtype=np.float64) / average)
            norms = table[lengths]
            if not all_seen:
                norms[~visible] = np.inf
        return Filtered(
            len(lengths), count, total, None if count == len(lengths) else visible, None if all_seen else visible, norms,
            constants, _factors(255, constants),
        )  # fmt: skip


def _factors(largest: int, constants: Constants) -> Floats:
    return np.arange(largest + 1, dtype=np.float64) * (constants.k1 + 1)


@dataclass(frozen=True, slots=True)
class Term:
    """Where a term occurs among the records below `upto`. Common terms: `dense[n]` is the frequency in record n. Others:
    `numbers`, ascending, and `frequencies`."""

    upto: int
    numbers: Ints
    frequencies: Frequencies
    dense: NDArray[np.uint8] | None
    holders: int
    largest: int
    size: int
    """Bytes in memory, about."""

    @staticmethod
    def of(upto: int, numbers: Ints, frequencies: Frequencies) -> "Term":
        largest = int(frequencies.max()) if len(frequencies) else 0
        if len(numbers) * 3 > upto and largest < 256:
            dense = np.zeros(upto, np.uint8)
            dense[numbers] = frequencies
            return Term(upto, _NONE, _NO_FREQUENCIES, dense, len(numbers), largest, upto + TERM_BYTES)
        size = numbers.nbytes + frequencies.nbytes + TERM_BYTES
        return Term(upto, numbers, frequencies, None, len(numbers), largest, size)

    def sparse(self) -> tuple[Ints, Frequencies]:
        if self.dense is None:
            return self.numbers, self.frequencies
        numbers = np.flatnonzero(self.dense)
        return numbers, self.dense[numbers]

    def holders_in(self, collection: Filtered) -> int:
        """In how many records of the collection the term occurs."""
        end, mask = collection.end, collection.mask
        if self.dense is not None:
            if mask is None:
                return self.holders if end >= self.upto else int(np.count_nonzero(self.dense[:end]))
            below = min(end, self.upto)
            return int(np.count_nonzero(self.dense[:below].astype(np.bool_) & mask[:below]))
        if end >= self.upto:
            return self.holders if mask is None else int(np.count_nonzero(mask[self.numbers]))
        below = int(np.searchsorted(self.numbers, end))
        return below if mask is None else int(np.count_nonzero(mask[self.numbers[:below]]))

    def add_to(self, scores: Floats, collection: Filtered, weight: float) -> None:
        """Adds the term's part to every record's score. `weight`: w·idf."""
        if not self.holders:
            return
        gains = weight * collection.factors(self.largest)
        if self.dense is not None:
            dense = self.dense[: collection.end]
            divisors = dense + collection.norms[: len(dense)]
            scores[: len(dense)] += np.divide(gains[dense], divisors, out=divisors)
            return
        numbers, frequencies = self.numbers, self.frequencies
        if collection.end < self.upto:
            below = int(np.searchsorted(numbers, collection.end))
            numbers, frequencies = numbers[:below], frequencies[:below]
        divisors = collection.norms[numbers]
        divisors += frequencies
        scores[numbers] += np.divide(gains[frequencies], divisors, out=divisors)


@dataclass(frozen=True, slots=True)
class Weighed:
    """A term of a query: its weight, and its postings in parts that have no record in common."""

    weight: float
    parts: Sequence[Term]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """`scores[n]` is record n's, 0 where it does not match or is not seen. `frequencies`: of the terms, in their order."""

    scores: Floats
    frequencies: list[int] = field(default_factory=list[int])


def evaluate(collection: Filtered, terms: Sequence[Weighed]) -> Evaluated:
    scores = np.zeros(collection.end)
    if not collection.total:
        return Evaluated(scores, [0] * len(terms))
    found: list[int] = []
    for term in terms:
        holders = sum(part.holders_in(collection) for part in term.parts)
        found.append(holders)
        if holders:
            weight = term.weight * idf(collection.count, holders)
            for part in term.parts:
                part.add_to(scores, collection, weight)
    return Evaluated(scores, found)


def best(scores: Floats, ids: NDArray[np.bytes_], limit: int | None) -> tuple[Ints, Floats]:
    """Numbers and scores of the `limit` best (None: all) that score above 0; equal scores in code-point order of ids."""
    numbers = _candidates(scores, limit)
    values = scores[numbers]
    order = np.argsort(-values, kind="stable")
    numbers, values = numbers[order], values[order]
    equal = np.flatnonzero(values[1:] == values[:-1])
    if len(equal):
        order = np.lexsort((ids[numbers], -values))
        numbers, values = numbers[order], values[order]
    return (numbers, values) if limit is None else (numbers[:limit], values[:limit])


def _candidates(scores: Floats, limit: int | None) -> Ints:
    """A superset of the best: all that score at least as much as the `limit`-th, ties included."""
    blocks = len(scores) // BLOCK
    bound = 0.0
    if limit is not None and blocks > 2 * limit:
        # The limit-th largest maximum of blocks is at most the limit-th largest score.
        most = scores[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        bound = float(np.partition(most, blocks - limit)[blocks - limit])
    numbers = np.flatnonzero(scores >= bound) if bound > 0 else np.flatnonzero(scores > 0)
    if limit is not None and len(numbers) > 2 * limit:
        values = scores[numbers]
        bound = float(np.partition(values, len(values) - limit)[len(values) - limit])
        numbers = numbers[values >= bound]
    return numbers
