"""Exact lexical search over the index of a store, at any revision and scope (memory-agent.md §2.2, contract.md `lexical`)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.cache import Cache, StoreKey
from core.search.lexical.columns import raw
from core.search.lexical.evaluation import Filtered, Frequencies, Gain, Places, Term, best, evaluate
from core.search.lexical.known import Known, Segment
from core.search.lexical.model import NO_SCOPE, LexicalResult, Scope
from core.search.lexical.postings import Ints, Postings, decode, key
from core.search.lexical.terms import query_terms
from core.store.database import Row, Tx, as_text

TRIES = 20
"""Under a stream of bulk writes the segments may change several times between two statements."""
FEW_IDS = 1_000
SMALL = 20_000
"""Of a store with at most so many records all ids are read at once: two hundred of them alone take longer."""


class _Moved(Exception):
    """Sealed, merged or erased between two statements of one search."""


class LexicalIndex:
    """One a process, for all its threads. Keeps at most about `cache_bytes` between searches."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache = Cache(cache_bytes)

    def search(
        self,
        tx: Tx,
        tenant_id: UUID,
        store_id: UUID,
        query: str,
        *,
        version: int,
        revision: int | None = None,
        scope: Scope = NO_SCOPE,
        limit: int | None = None,
        named: bool = True,
    ) -> LexicalResult | None:
        """The records that match, at `revision` (None: now). None when the store has no index of this version, or is gone.

        `named`: with their ids, which cost a statement until the process has them all."""
        terms = query_terms(query, version)
        for _ in range(TRIES):
            try:
                return _Search(self.cache, tx, (tenant_id, store_id, version)).run(terms, revision, scope, limit, named)
            except _Moved:
                continue
        return None


class _Search:
    """One search of one state of the index."""

    def __init__(self, cache: Cache, tx: Tx, name: StoreKey) -> None:
        self._cache = cache
        self._tx = tx
        self._place = {"tenant": name[0], "store": name[1]}
        self._version = name[2]
        self._known: Known = cache.store(name)
        self._ids_found: dict[int, str] = {}
        self._sent: dict[int, list[bytes | None]] = {}
        """By segment, the postings of the terms in their order, that came with the state of the index."""

    def run(
        self, terms: Sequence[str], revision: int | None, scope: Scope, limit: int | None, named: bool
    ) -> LexicalResult | None:
        known = self._known
        with known.lock:
            try:
                found = self._look([key(term) for term in terms], revision, scope)
            except _Moved:
                raise
            except BaseException:
                self._forget()  # it may be half taken over
                raise
            if found is None:
                self._forget()
                return None
        collection = found.collection
        every = evaluate(collection.end, found.gains)
        numbers, scores = best(every, limit, lambda numbers: self._ids(numbers, found.state))
        ids = [own_id.decode() for own_id in self._ids(numbers, found.state).tolist()] if named else []
        return LexicalResult(
            found.revision if revision is None else revision, numbers, scores, ids, every, collection.count,
            collection.average, {term: gain.holders for term, gain in zip(terms, found.gains, strict=True)},
            found.ordinals, found.pieces, collection.visible, all_seen=collection.mask is None,
        )  # fmt: skip

    def _look(self, keys: Sequence[bytes], revision: int | None, scope: Scope) -> "_Looked | None":
        known = self._known
        codes = self._refresh(scope, keys)
        if codes is None:
            return None
        self._complete(keys)
        collection = known.filtered(self._end(revision), codes)
        gains = [self._gain(term, collection) for term in keys]
        self._cache.used(known, keys)
        return _Looked((known.build, known.epoch), known.revision, collection, gains, *known.columns(collection.end))

    def _forget(self) -> None:
        self._known.reset()
        self._cache.drop(self._known)

    def _refresh(self, scope: Scope, keys: Sequence[bytes]) -> Sequence[int] | None:
        """The codes of the scope; None: there is no index."""
        known = self._known
        before = known.build, known.epoch
        have = as_text([segment.id for segment in known.segments if segment.packed is not None])
        rows = self._tx.binary(
            "lexical_state",
            **self._place,
            # As text, for the same reason as lists of numbers.
            version=str(self._version),
            build=str(known.build),
            epoch=str(known.epoch),
            layout=str(known.layout),
            known=str(known.upto),
            named=str(known.named),
            small=str(SMALL),
            have=have,
            terms=None if known.upto or not keys else [term.decode() for term in keys],
            workspace=scope.workspace_id,
            session=scope.session_id,
        )
        if not rows or (rows[0]["build"] is None and rows[0]["next_number"] > 0):
            return None
        known.take(rows)
        self._sent = {row["segment_id"]: row["postings"] for row in rows if row["postings"] is not None}
        if before != (known.build, known.epoch):
            self._cache.forget_terms(known)
        return rows[0]["codes"] or ()

    def _complete(self, keys: Sequence[bytes]) -> None:
        """Reads what the cached terms lack below `base`."""
        known = self._known
        lacking = {term: entry for term in keys if (entry := known.terms.get(term)) is None or entry.upto < known.base}
        if not lacking:
            return
        since = min(0 if entry is None else entry.upto for entry in lacking.values())
        segments = [segment for segment in known.segments if since < segment.end <= known.base]
        found: dict[bytes, list[_Piece]] = {term: [] for term in lacking}
        unread = {
            segment.id: segment for segment in segments if segment.packed is None and segment.id not in self._sent
        }
        if unread:
            self._read_sealed(unread, found)
        for segment in segments:
            for term, postings in zip(keys, self._sent.get(segment.id, ()), strict=False):
                if postings is not None and term in found:
                    found[term].append(_Piece(segment.first, decode(postings)))
            if segment.packed is not None:
                for term, pieces in found.items():
                    postings = segment.packed.find(term)
                    if postings is not None:
                        pieces.append(_Piece(segment.first, postings))
        for term, entry in lacking.items():
            known.terms[term] = _extended(entry, known.base, found[term])

    def _read_sealed(self, sealed: Mapping[int, Segment], found: Mapping[bytes, list["_Piece"]]) -> None:
        rows = self._tx.binary(
            "lexical_postings", **self._place, build=str(self._known.build),
            segments=as_text(sealed), terms=[term.decode() for term in found],
        )  # fmt: skip
        self._check_same(rows)
        for row in rows:
            if row["term"] is not None:
                piece = _Piece(sealed[row["segment_id"]].first, decode(row["postings"]))
                found[row["term"].encode()].append(piece)

    def _check_same(self, rows: Sequence[Row]) -> None:
        if not rows or (rows[0]["epoch"], rows[0]["layout"]) != (self._known.epoch, self._known.layout):
            raise _Moved

    def _end(self, revision: int | None) -> int:
        """The store at a revision is the numbers below this."""
        known = self._known
        segment = None if revision is None or revision >= known.revision else known.segment_at(revision)
        if revision is None or segment is None:
            return known.upto
        if revision < segment.lowest:
            return segment.first
        revisions = segment.revisions
        if revisions is None:
            rows = self._tx.binary("segment_revisions", **self._place, segment=str(segment.id))
            if not rows:
                raise _Moved
            revisions = raw(rows[0]["revisions"], segment.end - segment.first).astype(np.int64)
            revisions = segment.revisions = np.maximum(revisions + rows[0]["first_revision"], segment.lowest)
            known.weigh()
        return segment.first + int(np.searchsorted(revisions, revision, "right"))

    def _gain(self, term: bytes, collection: Filtered) -> Gain:
        known = self._known
        return known.terms[term].gain(collection, known.loose(term) if known.base < known.upto else None)

    def _ids(self, numbers: Ints, state: tuple[int, int]) -> NDArray[np.bytes_]:
        """The ids of these records, all of which were there in the state of the index that is searched."""
        known = self._known
        if not len(numbers):
            return np.empty(0, "S1")
        with known.lock:
            if (known.build, known.epoch) != state:
                raise _Moved
            if not known.named and len(numbers) <= FEW_IDS and known.asked_for_ids in (None, self):
                known.asked_for_ids = self
                return self._few_ids(numbers.tolist())
            if known.named < known.upto:
                rows = self._tx.binary("lexical_ids", **self._place, build=str(known.build), named=str(known.named))
                self._check_same(rows)
                known.name([row for row in rows if row["ids"] is not None])
                known.weigh()
                self._cache.used(known, ())
            return known.ids(numbers)

    def _few_ids(self, numbers: list[int]) -> NDArray[np.bytes_]:
        found = self._ids_found
        lacking = [number for number in numbers if number not in found]
        found |= ids_of(self._tx, self._place["tenant"], self._place["store"], lacking)
        if any(number not in found for number in lacking):
            raise _Moved
        return np.array([found[number].encode() for number in numbers], np.bytes_)


def ids_of(tx: Tx, tenant_id: UUID, store_id: UUID, numbers: Collection[int]) -> dict[int, str]:
    """Of the records with these numbers that are still there."""
    if not numbers:
        return {}
    (row,) = tx.binary("ids_of_numbers", tenant=tenant_id, store=store_id, numbers=as_text(numbers))
    return dict(zip(map(int, row["numbers"].split()), row["ids"].split(), strict=True))


class _Looked(NamedTuple):
    """What is taken from the cache, all of one `state` (build and epoch) of the index; nothing of it ever changes."""

    state: tuple[int, int]
    revision: int
    collection: Filtered
    gains: list[Gain]
    ordinals: NDArray[np.int32]
    pieces: NDArray[np.int8]


class _Piece:
    """A term's postings in one segment, by number."""

    __slots__ = ("first", "frequencies", "numbers")

    def __init__(self, first: int, postings: Postings) -> None:
        self.first = first
        self.numbers: Places = postings[0].astype(np.uint32)
        self.numbers += np.uint32(first)
        self.frequencies: Frequencies = postings[1]


def _extended(entry: Term | None, base: int, pieces: list[_Piece]) -> Term:
    """A term with what segments add to it; what they share with it is left out."""
    pieces.sort(key=lambda piece: piece.first)
    numbers: list[Places] = []
    counts: list[Any] = []
    if entry is not None:
        numbers.append(entry.numbers)
        counts.append(entry.frequencies)
    for piece in pieces:
        skipped = 0 if entry is None or piece.first >= entry.upto else int(np.searchsorted(piece.numbers, entry.upto))
        numbers.append(piece.numbers[skipped:])
        counts.append(piece.frequencies[skipped:])
    if not numbers:
        return Term(base, np.empty(0, np.uint32), np.empty(0, np.uint8))
    # Copies, so that no small part keeps a whole segment in memory. Frequencies are of the wider type where they differ.
    return Term(base, np.concatenate(numbers), np.concatenate(counts))
