"""What a process keeps of a store's index: its columns, its unsealed segments, and the terms that were asked for."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.columns import ERASED, EVERYONE, identities, raw
from core.search.lexical.evaluation import Constants, Filtered, Term
from core.search.lexical.postings import Ints, Packed
from core.store.database import Row

_Kind = TypeVar("_Kind", bound=np.generic)

VIEWS = 2
"""Filtered collections that are kept: a read searches the same one many times."""
STORE_BYTES = 4_000
FEW = 32
"""A loose segment of fewer records is kept as a table of terms, which it is quicker to look up in."""


@dataclass(frozen=True, slots=True)
class Segment:
    id: int
    first: int
    end: int
    packed: Packed | None


class Known:
    """One version of one store's index. `upto`: the numbers below are known; `base`: those below are in cached terms, the
    others are loose. `size`: bytes in memory, about, without the terms.

    Whoever uses it holds `lock`; arrays handed out are never changed where they can be seen."""

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        self.lock = threading.Lock()
        self.revision = 0
        self.reset()

    def reset(self) -> None:
        """Nothing is known."""
        self.build = self.epoch = self.layout = -1
        self.upto = self.base = 0
        self.size = STORE_BYTES
        self.segments: list[Segment] = []
        self.terms: dict[bytes, Term] = {}
        self._lengths = np.empty(0, np.int32)
        self._scopes = np.empty(0, np.int32)
        self._ordinals = np.empty(0, np.int32)
        self._pieces = np.empty(0, np.int8)
        self._revisions = np.empty(0, np.int64)
        self._ids = np.empty(0, "S1")
        self._largest_scope = 0
        self._few: dict[bytes, tuple[list[int], list[int]]] = {}
        self._views: OrderedDict[tuple[int, tuple[int, ...]], Filtered] = OrderedDict()

    # -- what comes from the database ------------------------------------------------------------------------------------

    def take(self, rows: Sequence[Row]) -> None:
        """The rows of lexical_state. A store in which nothing was written yet has no build."""
        head = rows[0]
        if head["build"] is None:
            self.reset()
            self.revision = head["revision"]
            return
        if (head["build"], head["epoch"]) != (self.build, self.epoch):
            self.reset()
        found = [row for row in rows if row["segment_id"] is not None]
        if found:
            self._make_room(found)
        self.revision = head["revision"]
        if head["layout"] != self.layout:
            known = {segment.id: segment for segment in self.segments}
            self.segments = []
            self._few = {}
        else:
            known = {}
        self.base = head["loose_from"]
        for row in found:
            packed = Packed(row["packed"]) if row["packed"] is not None else None
            old = known.get(row["segment_id"])
            segment = old or Segment(row["segment_id"], row["first_number"], row["end_number"], packed)
            self.segments.append(segment)
            if segment.first >= self.base and segment.end - segment.first < FEW:
                self._tabulate(segment)
            if row["lengths"] is not None and segment.end > self.upto:
                self._extend(row)
        self.build, self.epoch, self.layout = head["build"], head["epoch"], head["layout"]
        if found:
            self._weigh()

    def _weigh(self) -> None:
        a_record = 21 + self._ids.dtype.itemsize + VIEWS * 9
        packed = sum(segment.packed.size + 300 for segment in self.segments if segment.packed is not None)
        self.size = len(self._lengths) * a_record + packed + 200 * len(self._few) + STORE_BYTES

    def _make_room(self, rows: Sequence[Row]) -> None:
        used, end = self.upto, max(row["end_number"] for row in rows)
        if end > len(self._lengths):
            room = end if not used else end + (end >> 3) + 64
            self._lengths = _roomy(self._lengths, used, room)
            self._scopes = _roomy(self._scopes, used, room)
            self._ordinals = _roomy(self._ordinals, used, room)
            self._pieces = _roomy(self._pieces, used, room)
            self._revisions = _roomy(self._revisions, used, room)
            self._ids = _roomy(self._ids, used, room)
        sizes = (len(row["ids"]) // (row["end_number"] - row["first_number"]) for row in rows if row["ids"] is not None)
        widest = max(sizes, default=0)
        if widest > self._ids.dtype.itemsize:
            self._ids = self._ids.astype(f"S{widest}")

    def _extend(self, row: Row) -> None:
        """Takes over what a segment's columns have from `upto` on."""
        first, end = row["first_number"], row["end_number"]
        count, new, start = end - first, slice(self.upto - first, None), self.upto
        scopes = raw(row["scopes"], count)[new]
        self._lengths[start:end] = raw(row["lengths"], count)[new]
        self._scopes[start:end] = scopes
        self._ordinals[start:end] = raw(row["ordinals"], count)[new]
        self._pieces[start:end] = raw(row["pieces"], count)[new]
        before = max(row["first_revision"], int(self._revisions[start - 1]) if start else 0)
        self._revisions[start:end] = raw(row["revisions"], count)[new]
        self._revisions[start:end] += row["first_revision"]
        if row["first_revision"] < before:  # of numbers that were all erased when they were indexed
            np.maximum(self._revisions[start:end], before, out=self._revisions[start:end])
        self._ids[start:end] = identities(row["ids"], count)[new]
        self._largest_scope = max(self._largest_scope, int(scopes.max()))
        self.upto = end

    def _tabulate(self, segment: Segment) -> None:
        assert segment.packed is not None
        inverted = segment.packed.inverted()
        documents, frequencies = inverted.documents.tolist(), inverted.frequencies.tolist()
        start = 0
        for term, end in zip(inverted.vocabulary, inverted.ends.tolist(), strict=True):
            numbers, counts = self._few.setdefault(term, ([], []))
            numbers += [segment.first + document for document in documents[start:end]]
            counts += frequencies[start:end]
            start = end

    # -- what is asked of it -------------------------------------------------------------------------------------------------

    def end_at(self, revision: int | None) -> int:
        """The store at a revision is the numbers below this."""
        if revision is None or revision >= self.revision:
            return self.upto
        return int(np.searchsorted(self._revisions[: self.upto], revision, "right"))

    def filtered(self, end: int, codes: Sequence[int], constants: Constants) -> Filtered:
        """The records below `end` that everyone sees or that have one of these scope codes."""
        visible = tuple(sorted(code for code in codes if code + EVERYONE <= self._largest_scope))
        found = self._views.get((end, visible))
        if found is None or found.constants != constants:
            scopes = self._scopes[:end]
            there = scopes != ERASED
            if self._largest_scope <= EVERYONE:
                seen = there
            else:
                table = np.zeros(self._largest_scope + 1, np.bool_)
                table[[EVERYONE, *(code + EVERYONE for code in visible)]] = True
                seen = table[scopes]
            found = self._views[end, visible] = Filtered.of(self._lengths[:end], seen, there, constants)
            while len(self._views) > VIEWS:
                self._views.popitem(last=False)
        return found

    def loose(self, term: bytes) -> Term | None:
        """Where a term occurs from `base` on."""
        numbers, counts = self._few.get(term, ((), ()))
        pieces: list[tuple[Ints, NDArray[np.uint32]]] = []
        if numbers:
            pieces.append((np.array(numbers, np.int64), np.array(counts, np.uint32)))
        for segment in reversed(self.segments):
            if segment.first < self.base:
                break
            if segment.end - segment.first >= FEW and segment.packed is not None:
                found = segment.packed.find(term)
                if found is not None:
                    pieces.append((found[0].astype(np.int64) + segment.first, found[1].astype(np.uint32)))
        if not pieces:
            return None
        places = np.concatenate([piece for piece, _ in pieces])
        order = np.argsort(places)
        frequencies = np.concatenate([piece for _, piece in pieces])[order]
        return Term(self.upto, places[order], frequencies, None, len(places), int(frequencies.max()), 0)

    def columns(self, end: int) -> tuple[NDArray[np.bytes_], NDArray[np.int32], NDArray[np.int8]]:
        """Ids, ordinals and pieces of the records below `end`."""
        return self._ids[:end], self._ordinals[:end], self._pieces[:end]


def _roomy(array: NDArray[_Kind], used: int, room: int) -> NDArray[_Kind]:
    larger = np.empty(room, array.dtype)
    larger[:used] = array[:used]
    return larger
