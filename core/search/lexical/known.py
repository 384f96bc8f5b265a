"""What a process keeps of a store's index: its columns, its unsealed segments, and the terms that were asked for."""

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.columns import ERASED, EVERYONE, identities, raw
from core.search.lexical.evaluation import Filtered, Term
from core.search.lexical.postings import Ints, Packed
from core.store.database import Row

_Kind = TypeVar("_Kind", bound=np.generic)

VIEWS = 2
"""Filtered collections that are kept: a read searches the same one many times."""
STORE_BYTES = 4_000
FEW = 32
"""A loose segment of fewer records is kept as a table of terms, which it is quicker to look up in."""


@dataclass(slots=True)
class Segment:
    """The records [first, end), written at the revisions [lowest, highest]. `revisions`: a record's, once somebody asked for
    a revision between these."""

    id: int
    first: int
    end: int
    lowest: int
    highest: int
    packed: Packed | None
    revisions: Ints | None = None


class Known:
    """One version of one store's index. `upto`: the numbers below are known; `base`: those below are in cached terms, the
    others are loose. `size`: bytes in memory, about, without the terms.

    Ids are the most of a store's columns, and few searches ask for them: but for small stores, whose ids come with all else,
    they are kept from the second one on that does.
    `named`: those below are known, none or all; `asked_for_ids`: the search that asked first.

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
        self.named = 0
        self.asked_for_ids: object = None
        self._lengths = np.empty(0, np.int32)
        self._scopes = np.empty(0, np.int32)
        self._ordinals = np.empty(0, np.int32)
        self._pieces = np.empty(0, np.int8)
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
        self.revision = head["revision"]
        if head["layout"] != self.layout:
            known = {segment.id: segment for segment in self.segments}
            self.segments = []
            self._few = {}
        else:
            known = {}
        self.base = head["loose_from"]
        for row in found:
            segment = known.get(row["segment_id"]) or self._segment(row)
            self.segments.append(segment)
            if segment.first >= self.base and segment.end - segment.first < FEW:
                self._tabulate(segment)
        self._extend([row for row in found if row["lengths"] is not None and row["end_number"] > self.upto])
        self.build, self.epoch, self.layout = head["build"], head["epoch"], head["layout"]
        if found:
            self.weigh()

    def _segment(self, row: Row) -> Segment:
        packed = Packed(row["packed"]) if row["packed"] is not None else None
        # Numbers that were all erased when they were indexed have a revision from before.
        before = self.segments[-1].highest if self.segments else 0
        lowest, highest = max(row["first_revision"], before), max(row["last_revision"], before)
        return Segment(row["segment_id"], row["first_number"], row["end_number"], lowest, highest, packed)

    def weigh(self) -> None:
        a_record = 13 + VIEWS * 2
        packed = sum(segment.packed.size + 300 for segment in self.segments if segment.packed is not None)
        others = sum(8 * len(segment.revisions) for segment in self.segments if segment.revisions is not None)
        self.size = (
            len(self._lengths) * a_record + self._ids.nbytes + packed + others + 200 * len(self._few) + STORE_BYTES
        )

    def _extend(self, rows: Sequence[Row]) -> None:
        """Takes over what these segments' columns have from `upto` on."""
        if not rows:
            return
        start, end = self.upto, rows[-1]["end_number"]
        if end > len(self._lengths):
            room = end if not start else end + (end >> 3) + 64
            self._lengths = _roomy(self._lengths, start, room)
            self._scopes = _roomy(self._scopes, start, room)
            self._ordinals = _roomy(self._ordinals, start, room)
            self._pieces = _roomy(self._pieces, start, room)
        for row in rows:
            count = row["end_number"] - row["first_number"]
            new, place = slice(self.upto - row["first_number"], None), slice(self.upto, row["end_number"])
            scopes = raw(row["scopes"], count)[new]
            self._lengths[place] = raw(row["lengths"], count)[new]
            self._scopes[place] = scopes
            self._ordinals[place] = raw(row["ordinals"], count)[new]
            self._pieces[place] = raw(row["pieces"], count)[new]
            self._largest_scope = max(self._largest_scope, int(scopes.max()))
            self.upto = row["end_number"]
        if all(row["ids"] is not None for row in rows):
            self.name(rows)

    def name(self, rows: Sequence[Row]) -> None:
        """Takes over the ids of these segments, in order, from where those that are known end."""
        found = [identities(row["ids"], row["end_number"] - row["first_number"]) for row in rows]
        if not self.named and len(found) == 1:
            self._ids, self.named = found[0], rows[0]["end_number"]  # as it came: what is longer is always a copy
            return
        if rows and rows[-1]["end_number"] > len(self._ids):
            end = rows[-1]["end_number"]
            self._ids = _roomy(self._ids, self.named, end if not self.named else end + (end >> 3) + 64)
        widest = max((ids.dtype.itemsize for ids in found), default=0)
        if widest > self._ids.dtype.itemsize:
            self._ids = self._ids.astype(f"S{widest}")
        for row, ids in zip(rows, found, strict=True):
            self._ids[self.named : row["end_number"]] = ids[self.named - row["first_number"] :]
            self.named = row["end_number"]

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

    def segment_at(self, revision: int) -> Segment | None:
        """The first segment with records beyond the revision."""
        place = bisect_right(self.segments, revision, key=lambda segment: segment.highest)
        return self.segments[place] if place < len(self.segments) else None

    def filtered(self, end: int, codes: Sequence[int]) -> Filtered:
        """The records below `end` that everyone sees or that have one of these scope codes."""
        visible = tuple(sorted(code for code in codes if code + EVERYONE <= self._largest_scope))
        found = self._views.get((end, visible))
        if found is None:
            scopes = self._scopes[:end]
            there = scopes != ERASED
            if self._largest_scope <= EVERYONE:
                seen = there
            else:
                table = np.zeros(self._largest_scope + 1, np.bool_)
                table[[EVERYONE, *(code + EVERYONE for code in visible)]] = True
                seen = table[scopes]
            found = self._views[end, visible] = Filtered.of(self._lengths[:end], seen, there)
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
        return Term(self.upto, places[order].astype(np.uint32), frequencies)

    def ids(self, numbers: Ints) -> NDArray[np.bytes_]:
        """Of records below `named`; empty when erased."""
        return self._ids[numbers]

    def columns(self, end: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
        """Ordinals and pieces of the records below `end`."""
        return self._ordinals[:end], self._pieces[:end]


def _roomy(array: NDArray[_Kind], used: int, room: int) -> NDArray[_Kind]:
    larger = np.empty(room, array.dtype)
    larger[:used] = array[:used]
    return larger
