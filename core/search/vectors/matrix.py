"""The vectors of one store in memory, by document number: exact while they are few, sketched first when they are many.

Up to 16,384 records a search multiplies them all (a quarter of the time of anything cleverer). Beyond, full blocks keep two
forms: a *sketch*, the vector's coordinates along the 128 directions in which the store's first vectors vary most, and the
vector itself as 16-bit numbers. A search ranks all by their sketches and scores the best 1,500 again by the vectors.
That is the store's own index: filters are applied before anything is chosen, so a rare scope loses nothing, as it would in
a graph over all tenants (recall and times: deploy/docs/performance.md).
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.search.selection import highest

Floats: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int64]

EXACT = 16_384
"""Up to so many records nothing is sketched."""
BLOCK = 8_192
SKETCH = 128
RESCORED = 1_500
SAMPLE = 4_096
"""The first vectors, from which the directions are found: the same in every process."""
SHARED = 4
"""From so many blocks on a second thread does half of the multiplying, if it is free: memory is what takes the time, and a
lone core does not use all there is of it."""
_helper = ThreadPoolExecutor(1, "similar")
_SCALE = 32_767.0
_LEAST = 64
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Similar:
    """`numbers` by cosine, best first, equal ones by number; both arrays are of one length."""

    numbers: Numbers
    cosines: Floats


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of `vectors`: float32, or int16 with their sketches, a column each (twice as quick to multiply as rows)."""

    vectors: NDArray[np.float32] | NDArray[np.int16]
    sketch: Floats | None

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + (0 if self.sketch is None else self.sketch.nbytes)

    def __len__(self) -> int:
        return len(self.vectors)

    def cosines(self, query: Floats, places: Numbers) -> Floats:
        scale = np.float32(1 if self.sketch is None else _SCALE)
        return np.matmul(self.vectors[places].astype(np.float32, copy=False), query / scale)


class Matrix:
    """Vectors of numbers 0 … `count` − 1, some of which may be missing. Grows at the end under its owner's lock; a `view` is
    taken under it too, and then stays as it is."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._full: list[_Block] = []
        self._tail = np.empty((_LEAST, dimensions), np.float32)
        self._filled = 0
        self._present = np.empty(_LEAST, np.bool_)
        self._directions: Floats | None = None

    @property
    def count(self) -> int:
        return len(self._full) * BLOCK + self._filled

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for block in self._full) + self._tail.nbytes + self._present.nbytes

    def append(self, vectors: Floats, present: Mask) -> None:
        """Rows for the next numbers; of one that is not present the row is zero."""
        self._present = _room(self._present, self.count, len(present))
        self._present[self.count : self.count + len(present)] = present
        while len(vectors):
            fits = min(len(vectors), BLOCK - self._filled)
            self._tail = _room(self._tail, self._filled, fits, BLOCK)
            self._tail[self._filled : self._filled + fits] = vectors[:fits]
            self._filled += fits
            vectors = vectors[fits:]
            if self._filled == BLOCK:
                self._full.append(_Block(self._tail, None))
                self._tail, self._filled = np.empty((_LEAST, self.dimensions), np.float32), 0
                self._sketch()

    def view(self) -> "View":
        tail = [_Block(self._tail[: self._filled], None)] if self._filled else []
        return View([*self._full, *tail], self._present[: self.count], self._directions)

    def _sketch(self) -> None:
        if len(self._full) * BLOCK <= EXACT or self.dimensions <= SKETCH:
            return
        if self._directions is None:
            self._directions = _directions(self._full[0].vectors[:SAMPLE].astype(np.float32, copy=False))
        for place, block in enumerate(self._full):
            if block.sketch is None:
                vectors = block.vectors.astype(np.float32, copy=False)
                coded = np.rint(vectors * np.float32(_SCALE)).astype(np.int16)
                self._full[place] = _Block(coded, np.ascontiguousarray((vectors @ self._directions).T))


class View:
    """A matrix as it was at one moment; for any number of threads."""

    def __init__(self, blocks: Sequence[_Block], present: Mask, directions: Floats | None) -> None:
        self._blocks = blocks
        self._directions = directions
        self.present = present

    @property
    def count(self) -> int:
        return len(self.present)

    def similar(self, query: Floats, k: int, visible: Mask | None = None) -> Similar:
        """The `k` nearest of the numbers that are `visible` (a mask by number, however long; None: all)."""
        scores, exact = self._scores(query, k, visible)
        shown = _shown(self.present, visible)
        if exact is not None:
            shown = shown & exact
        scores[~shown] = -np.inf
        return top(np.arange(self.count), scores, k)

    def every(self, query: Floats, visible: Mask | None = None) -> Floats:
        """By number; NaN where there is no vector. Beyond the nearest that are visible (as many as a search scores again) a
        sketched vector's is a rough one."""
        scores, _ = self._scores(query, 0, visible)
        scores[~self.present] = np.nan
        return scores

    def cosines(self, query: Floats, numbers: Numbers) -> Floats:
        """Of these numbers, in their order; NaN where there is no vector."""
        found = np.full(len(numbers), np.nan, np.float32)
        for start, block in self._placed():
            here = np.flatnonzero((numbers >= start) & (numbers < start + len(block)))
            if len(here):
                found[here] = block.cosines(query, numbers[here] - start)
        known = numbers < self.count
        found[known] = np.where(self.present[numbers[known]], found[known], np.nan)
        return found

    def _scores(self, query: Floats, k: int, visible: Mask | None) -> tuple[Floats, Mask | None]:
        """By number, of those that are not present too; and which of them are exact (None: all)."""
        scores = self._first_scores(query)
        sketched = sum(len(block) for block in self._blocks if block.sketch is not None)
        if not sketched:
            return scores, None
        shown = _shown(self.present, visible)[:sketched]
        rough = np.where(shown, scores[:sketched], -np.inf)
        best = highest(rough, max(RESCORED, k))
        if len(best) > 2 * max(RESCORED, k):  # many copies of one text: not all of them
            best = top(np.arange(sketched), rough, max(RESCORED, k)).numbers
        scores[best] = self.cosines(query, best)
        exact = np.ones(self.count, np.bool_)
        exact[:sketched] = False
        exact[best] = True
        return scores, exact

    def _first_scores(self, query: Floats) -> Floats:
        """Cosines, and rough ones where there are sketches."""
        scores = np.empty(self.count, np.float32)
        rough = query if self._directions is None else query @ self._directions

        def fill(blocks: Sequence[tuple[int, _Block]]) -> None:
            for start, block in blocks:
                out = scores[start : start + len(block)]
                if block.sketch is None:
                    np.matmul(block.vectors, query, out=out)
                else:
                    np.matmul(rough, block.sketch, out=out)

        blocks = list(self._placed())
        if len(blocks) < SHARED:
            fill(blocks)
            return scores
        half = len(blocks) // 2
        helper = _helper.submit(fill, blocks[half:])
        fill(blocks[:half])
        if helper.cancel():  # it is busy with another search
            fill(blocks[half:])
        else:
            helper.result()
        return scores

    def _placed(self) -> Iterator[tuple[int, _Block]]:
        start = 0
        for block in self._blocks:
            yield start, block
            start += len(block)


def top(numbers: Numbers, scores: Floats, k: int) -> Similar:
    """The `k` best above −∞, whatever ties there are at the edge."""
    chosen = highest(scores, k)
    order = np.lexsort((numbers[chosen], -scores[chosen]))[: max(k, 0)]
    return Similar(numbers[chosen][order], scores[chosen][order])


def _shown(present: Mask, visible: Mask | None) -> Mask:
    """What is visible beyond the vectors has none yet; what `visible` does not reach is later than the search's revision."""
    if visible is None:
        return present
    shown = np.zeros(len(present), np.bool_)
    reach = min(len(present), len(visible))
    np.logical_and(present[:reach], visible[:reach], out=shown[:reach])
    return shown


def _directions(sample: Floats) -> Floats:
    """Columns that span most of what the sample varies in; found by power iteration from a fixed start."""
    start = np.random.default_rng(0).standard_normal((sample.shape[1], SKETCH), np.float32)
    columns: Floats = np.linalg.qr(start)[0].astype(np.float32)
    for _ in range(4):
        columns = np.linalg.qr(sample.T @ (sample @ columns))[0].astype(np.float32)
    return columns


def _room(array: NDArray[_Scalar], used: int, more: int, most: int | None = None) -> NDArray[_Scalar]:
    """The array, or a longer copy: a view taken before keeps the old one."""
    if used + more <= len(array):
        return array
    length = max(2 * len(array), used + more)
    grown = np.empty((length if most is None else min(length, most), *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown
