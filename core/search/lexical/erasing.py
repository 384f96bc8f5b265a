"""Erasure: the record and its terms leave every segment that holds them, in the transaction that deletes it.

A number is never given again, so an erased record stays as a gap. The epoch of the store's builds rises, which voids what
processes have in memory, and what a seal, merge or rebuild under way has read.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import numpy as np

from core.search.lexical.columns import Columns
from core.search.lexical.postings import Ints, Packed, decode, encode, key
from core.search.lexical.terms import record_terms
from core.store.database import Row, Tx

PAGE = 20_000


def erase_documents(tx: Tx, tenant_id: UUID, store_id: UUID, documents: list[str]) -> None:
    """Takes the blocks of these documents out of the index. Call it before they are deleted, under the store's row lock."""
    rows = tx.rows("records_of_documents", tenant=tenant_id, store=store_id, documents=documents)
    if not rows:
        return
    gone: dict[int, str] = {row["number"]: row["canonical"] for row in rows}
    for segment in tx.binary("segments_of_numbers", tenant=tenant_id, store=store_id, numbers=list(gone)):
        _erase_in(tx, tenant_id, store_id, segment, gone)
    tx.run("raise_epoch", tenant=tenant_id, store=store_id)


def drop_unused_scopes(tx: Tx, tenant_id: UUID, store_id: UUID) -> None:
    """After the documents are deleted: names of sessions and workspaces that none has any more."""
    tx.run("drop_unused_scopes", tenant=tenant_id, store=store_id)


def erase_store(tx: Tx, tenant_id: UUID, store_id: UUID) -> None:
    tx.run("erase_index", tenant=tenant_id, store=store_id)


def _erase_in(tx: Tx, tenant_id: UUID, store_id: UUID, segment: Row, gone: Mapping[int, str]) -> None:
    columns = Columns.load(segment)
    numbers = [number for number in sorted(gone) if columns.first <= number < columns.end]
    places = np.array(numbers, np.int64) - columns.first
    place = {"tenant": tenant_id, "store": store_id, "segment": segment["segment_id"]}
    packed: bytes | None = segment["packed"]
    if packed is not None:
        packed = Packed(packed).inverted().without(places).packed()
    else:
        terms = {key(term).decode() for number in numbers for term in record_terms(gone[number], segment["version"])}
        removed = _rewrite(tx, place, _postings(tx, place, terms), places)
        if removed < int(columns.lengths[places].sum()):
            # The analysis has changed since: look at every term.
            after = ""
            while page := tx.binary("segment_postings", **place, after=after, limit=PAGE):
                after = page[-1]["term"]
                _rewrite(tx, place, {row["term"]: row["postings"] for row in page}, places)
    stored = columns.without(places).stored()
    names = ("lengths", "scopes", "ids")
    tx.run("rewrite_segment", **place, **{name: stored[name] for name in names}, packed=packed)


def _postings(tx: Tx, place: dict[str, Any], terms: set[str]) -> dict[str, bytes]:
    return {row["term"]: row["postings"] for row in tx.binary("postings_of_terms", **place, terms=sorted(terms))}


def _rewrite(tx: Tx, place: dict[str, Any], postings: Mapping[str, bytes], places: Ints) -> int:
    """Takes documents out of these terms' postings; how many occurrences that were."""
    changed: dict[str, bytes] = {}
    emptied: list[str] = []
    removed = 0
    for term, blob in postings.items():
        documents, frequencies = decode(blob)
        kept = ~np.isin(documents, places)
        if kept.all():
            continue
        removed += int(frequencies[~kept].sum(dtype=np.int64))
        if kept.any():
            changed[term] = encode(documents[kept], frequencies[kept].astype(np.uint32))
        else:
            emptied.append(term)
    if changed:
        tx.run("rewrite_postings", **place, terms=list(changed), blobs=list(changed.values()))
    if emptied:
        tx.run("delete_terms", **place, terms=emptied)
    return removed
