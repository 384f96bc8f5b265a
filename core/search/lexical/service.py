"""Exact lexical search over the index of a store, at any revision and scope (memory-agent.md §2.2, contract.md `lexical`)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from core.search.lexical.cache import Cache, StoreKey
from core.search.lexical.evaluation import FROZEN, Constants, Filtered, Frequencies, Term, Weighed, best, evaluate
from core.search.lexical.known import Known, Segment
from core.search.lexical.model import NO_SCOPE, LexicalResult, Scope
from core.search.lexical.postings import Ints, Postings, decode, key
from core.search.lexical.terms import query_terms
from core.store.database import Row, Tx

TRIES = 5


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
        constants: Constants = FROZEN,
        weights: Mapping[str, float] | None = None,
    ) -> LexicalResult | None:
        """The records that match, at `revision` (None: now). None when the store has no index of this version, or is gone.

        `weights`: other terms than the query's own, in the order in which their scores are to be added."""
        wanted = query_terms(query, version) if weights is None else dict(weights)
        name = (tenant_id, store_id, version)
        known = self.cache.store(name)
        keys = {term: key(term) for term in wanted}
        with known.lock:
            try:
                found = self._look(tx, name, known, keys, wanted, revision, scope, constants)
            except BaseException:
                self.cache.drop(known)
                raise
            if found is None:
                self.cache.drop(known)
                return None
            collection, terms = found
            all_ids, ordinals, pieces = known.columns(collection.end)
            now = known.revision
            self.cache.used(known, keys.values())
        evaluated = evaluate(collection, terms)
        numbers, scores = best(evaluated.scores, all_ids, limit)
        return LexicalResult(
            now if revision is None else revision, numbers, scores, evaluated.scores, collection.count,
            collection.average, dict(zip(wanted, evaluated.frequencies, strict=True)), all_ids, ordinals,
            pieces, collection.visible,
        )  # fmt: skip

    def _look(
        self,
        tx: Tx,
        name: StoreKey,
        known: Known,
        keys: Mapping[str, bytes],
        wanted: Mapping[str, float],
        revision: int | None,
        scope: Scope,
        constants: Constants,
    ) -> tuple[Filtered, list[Weighed]] | None:
        """The collection and the terms' postings, all of one state of the index. None: there is none."""
        for _ in range(TRIES):
            rows = self._refresh(tx, name, known, scope)
            if rows is None:
                return None
            if not _complete(tx, name, known, keys.values()):
                continue  # sealed, merged or erased between the two statements
            collection = known.filtered(known.end_at(revision), rows[0]["codes"] or (), constants)
            terms = [Weighed(weight, _parts(known, keys[term])) for term, weight in wanted.items()]
            return collection, terms
        return None

    def _refresh(self, tx: Tx, name: StoreKey, known: Known, scope: Scope) -> Sequence[Row] | None:
        tenant_id, store_id, version = name
        before = known.build, known.epoch
        have = ",".join(str(segment.id) for segment in known.segments if segment.packed is not None)
        rows = tx.binary(
            "lexical_state",
            tenant=tenant_id,
            store=store_id,
            # As text: a number's own type would depend on its size, and each combination be a statement to be planned.
            version=str(version),
            build=str(known.build),
            epoch=str(known.epoch),
            layout=str(known.layout),
            known=str(known.upto),
            have=f"{{{have}}}",
            workspace=scope.workspace_id,
            session=scope.session_id,
        )
        if not rows or (rows[0]["build"] is None and rows[0]["next_number"] > 0):
            return None
        known.take(rows)
        if before != (known.build, known.epoch):
            self.cache.forget_terms(known)
        return rows


def _parts(known: Known, term: bytes) -> list[Term]:
    loose = known.loose(term) if known.base < known.upto else None
    return [known.terms[term]] if loose is None else [known.terms[term], loose]


def _complete(tx: Tx, name: StoreKey, known: Known, keys: Iterable[bytes]) -> bool:
    """Reads what the cached terms lack below `base`. False: the index is no longer as it was refreshed."""
    lacking = {term: entry for term in keys if (entry := known.terms.get(term)) is None or entry.upto < known.base}
    if not lacking:
        return True
    since = min(0 if entry is None else entry.upto for entry in lacking.values())
    segments = [segment for segment in known.segments if since < segment.end <= known.base]
    found: dict[bytes, list[_Piece]] = {term: [] for term in lacking}
    sealed = {segment.id: segment for segment in segments if segment.packed is None}
    if sealed and not _read_sealed(tx, name, known, sealed, found):
        return False
    for segment in segments:
        if segment.packed is not None:
            for term, pieces in found.items():
                postings = segment.packed.find(term)
                if postings is not None:
                    pieces.append(_Piece(segment.first, postings))
    for term, entry in lacking.items():
        known.terms[term] = _extended(entry, known.base, found[term])
    return True


class _Piece:
    """A term's postings in one segment, by number."""

    __slots__ = ("first", "frequencies", "numbers")

    def __init__(self, first: int, postings: Postings) -> None:
        self.first = first
        self.numbers: Ints = postings[0].astype(np.int64) + first
        self.frequencies: Frequencies = postings[1]


def _read_sealed(
    tx: Tx, name: StoreKey, known: Known, sealed: Mapping[int, Segment], found: Mapping[bytes, list[_Piece]]
) -> bool:
    rows = tx.binary(
        "lexical_postings", tenant=name[0], store=name[1], build=str(known.build),
        segments=f"{{{','.join(map(str, sealed))}}}", terms=[term.decode() for term in found],
    )  # fmt: skip
    if not rows or (rows[0]["epoch"], rows[0]["layout"]) != (known.epoch, known.layout):
        return False
    for row in rows:
        if row["term"] is not None:
            found[row["term"].encode()].append(_Piece(sealed[row["segment_id"]].first, decode(row["postings"])))
    return True


def _extended(entry: Term | None, base: int, pieces: list[_Piece]) -> Term:
    """A term with what segments add to it; what they share with it is left out."""
    pieces.sort(key=lambda piece: piece.first)
    numbers: list[Ints] = []
    counts: list[Frequencies] = []
    if entry is not None and entry.holders:
        own, frequencies = entry.sparse()
        numbers.append(own)
        counts.append(frequencies)
    for piece in pieces:
        skipped = 0 if entry is None or piece.first >= entry.upto else int(np.searchsorted(piece.numbers, entry.upto))
        numbers.append(piece.numbers[skipped:])
        counts.append(piece.frequencies[skipped:])
    if not numbers:
        return Term.of(base, np.empty(0, np.int64), np.empty(0, np.uint8))
    if len(numbers) == 1:
        return Term.of(base, numbers[0], counts[0])
    joined: Any = np.concatenate(counts)  # of the wider type, when they differ
    return Term.of(base, np.concatenate(numbers), joined)
