"""Stores' vectors in the memory of one process, bounded in bytes; what a process has not seen yet is read from Postgres.

Vectors are filled in order of document numbers, so what is new is always at the end. What was erased stays in memory until
its store leaves it, and is never shown: a search names the numbers it may see.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol
from uuid import UUID

import numpy as np

from core.search.vectors.matrix import Floats, Mask, Matrix, Numbers, Similar, View, top
from core.store.database import Row, Tx, as_text

PAGE = 2_048
DEFAULT_BYTES = 512 * 1024 * 1024

_Key = tuple[UUID, UUID, UUID]


class Vectors(Protocol):
    """The vectors of one store, for one search."""

    @property
    def count(self) -> int:
        """Numbers below this have their vector, if their record is still there."""
        ...

    def similar(self, query: Floats, k: int, visible: Mask | None = None) -> Similar:
        """The `k` nearest of the numbers that are `visible` (a mask by number, however long; None: all)."""
        ...

    def every(self, query: Floats, visible: Mask | None = None) -> Floats:
        """By number, below `count`; NaN where there is no vector. Of what is far from the query, perhaps rough ones."""
        ...

    def cosines(self, query: Floats, numbers: Numbers) -> Floats:
        """Of these numbers, in their order; NaN where there is no vector."""
        ...


class _Entry:
    def __init__(self, dimensions: int) -> None:
        self.lock = threading.Lock()
        self.matrix = Matrix(dimensions)


class VectorCache:
    """Made once a process. Holds at most `limit` bytes; the store that was searched longest ago goes first."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(entry.matrix.nbytes for entry in self._entries.values())

    def open(self, tx: Tx, tenant_id: UUID, store_id: UUID, space: UUID) -> Vectors | None:
        """The store's vectors of one space as they are committed now; None: there are none yet.

        A store that is too large for the whole cache is read from Postgres for every search, a page at a time."""
        found = tx.row("vector_set", tenant=tenant_id, store=store_id, space=space)
        if found is None or found["dimensions"] is None:
            return None
        place = {"tenant": tenant_id, "store": store_id, "space": space}
        if found["filled"] * found["dimensions"] * 2 > self._limit:
            return _Streamed(tx, place, found)
        with self._lock:
            entry = self._entries.setdefault((tenant_id, store_id, space), _Entry(found["dimensions"]))
            self._entries.move_to_end((tenant_id, store_id, space))
        with entry.lock:
            for vectors, present in _pages(tx, place, found, entry.matrix.count):
                entry.matrix.append(vectors, present)
            view = entry.matrix.view()
        self._shrink()
        return view

    def _shrink(self) -> None:
        with self._lock:
            total = sum(entry.matrix.nbytes for entry in self._entries.values())
            while total > self._limit and self._entries:
                _, entry = self._entries.popitem(last=False)
                total -= entry.matrix.nbytes


class _Streamed:
    """Exact, slow, and small: the vectors pass through memory."""

    def __init__(self, tx: Tx, place: dict[str, UUID], found: Row) -> None:
        self._tx = tx
        self._place = place
        self._found = found

    @property
    def count(self) -> int:
        return self._found["filled"]

    def similar(self, query: Floats, k: int, visible: Mask | None = None) -> Similar:
        best = Similar(np.empty(0, np.int64), np.empty(0, np.float32))
        first = 0
        for vectors, present in _pages(self._tx, self._place, self._found, 0):
            shown = None if visible is None else visible[first : first + len(present)]
            page = _page_view(vectors, present).similar(query, k, shown)
            numbers = np.concatenate([best.numbers, page.numbers + first])
            best = top(numbers, np.concatenate([best.cosines, page.cosines]), k)
            first += len(present)
        return best

    def every(self, query: Floats, visible: Mask | None = None) -> Floats:
        del visible  # all are exact
        pages = _pages(self._tx, self._place, self._found, 0)
        return np.concatenate([_page_view(vectors, present).every(query) for vectors, present in pages])

    def cosines(self, query: Floats, numbers: Numbers) -> Floats:
        found = np.full(len(numbers), np.nan, np.float32)
        places = {int(number): n for n, number in enumerate(numbers)}
        for row in self._tx.binary("vectors_of_numbers", **self._place, numbers=as_text(places)):
            found[places[row["number"]]] = np.frombuffer(row["vector"], "<f4") @ query
        return found


def _page_view(vectors: Floats, present: Mask) -> View:
    matrix = Matrix(vectors.shape[1])
    matrix.append(vectors, present)
    return matrix.view()


def _pages(tx: Tx, place: dict[str, UUID], found: Row, first: int) -> Iterator[tuple[Floats, Mask]]:
    """The rows of numbers `first` … `filled` − 1; zero and not present where the record or its vector is gone."""
    filled: int = found["filled"]
    for start in range(first, filled, PAGE):
        end = min(start + PAGE, filled)
        vectors = np.zeros((end - start, found["dimensions"]), np.float32)
        present = np.zeros(end - start, np.bool_)
        (row,) = tx.binary("vectors_between", **place, first=start, end=end)
        if row["numbers"]:
            places = np.array(row["numbers"], np.int64) - start
            vectors[places] = np.frombuffer(row["vectors"], "<f4").reshape(len(places), -1)
            present[places] = True
        yield vectors, present
