"""Lexical search with or without an index: the same ranking over the records themselves, for a store whose index is missing,
of another version, or being built."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from uuid import UUID

import numpy as np

from core.search.lexical.columns import ERASED, Columns, Indexed
from core.search.lexical.evaluation import Filtered, Gain, best, evaluate
from core.search.lexical.model import NO_SCOPE, LexicalResult, Scope
from core.search.lexical.service import LexicalIndex
from core.search.lexical.terms import indexed, query_terms
from core.store.database import Database, Row, Tx

PAGE = 2_000


@contextmanager
def searched(
    db: Database,
    lexical: LexicalIndex,
    tenant_id: UUID,
    store_id: UUID,
    query: str,
    *,
    version: int,
    revision: int,
    scope: Scope = NO_SCOPE,
    limit: int | None = None,
    named: bool = True,
    check: Callable[[], None],
) -> Generator[tuple[Tx, LexicalResult]]:
    """By the index where there is one of this version, else over the records (`in_memory`). With a transaction of the tenant
    for what else is to be read, since to begin one takes as long as the search."""
    with db.tenant(tenant_id) as tx:
        found = lexical.search(
            tx, tenant_id, store_id, query, version=version, revision=revision, scope=scope, limit=limit, named=named,
        )  # fmt: skip
        if found is not None:
            yield tx, found
            return
    found = search_records(
        db, tenant_id, store_id, query, version=version, revision=revision, scope=scope, limit=limit, check=check
    )
    with db.tenant(tenant_id) as tx:
        yield tx, found


def search_records(
    db: Database,
    tenant_id: UUID,
    store_id: UUID,
    query: str,
    *,
    version: int,
    revision: int,
    scope: Scope = NO_SCOPE,
    limit: int | None = None,
    check: Callable[[], None],
) -> LexicalResult:
    """Reads and analyses every visible record. No connection is held between pages; `check` is called there, and raises to
    stop."""
    wanted = query_terms(query, version)
    holders: dict[str, tuple[list[int], list[int]]] = {term: ([], []) for term in wanted}
    records: list[Indexed] = []
    lengths: list[int] = []
    after = -1
    while True:
        check()
        page = _page(db, tenant_id, store_id, revision, scope, after)
        for row in page:
            terms, piece = indexed(row["canonical"], version)
            for term in holders.keys() & set(terms):
                numbers, counts = holders[term]
                numbers.append(row["number"])
                counts.append(terms.count(term))
            records.append(Indexed(row["number"], row["id"], row["revision"], row["ordinal"], 0, piece, ()))
            lengths.append(len(terms))
        if len(page) < PAGE:
            break
        after = page[-1]["number"]
    end = records[-1].number + 1 if records else 0
    columns = Columns.of(records, 0, end, 0)
    columns.lengths[[record.number for record in records]] = lengths
    there = columns.scopes != ERASED
    collection = Filtered.of(columns.lengths.astype(np.int32), there, there)
    gains = [
        Gain.of(collection, np.array(holders[term][0], np.uint32), np.array(holders[term][1], np.uint32))
        for term in wanted
    ]
    every = evaluate(end, gains)
    best_numbers, scores = best(every, limit, columns.ids.__getitem__)
    return LexicalResult(
        revision, best_numbers, scores, [own_id.decode() for own_id in columns.ids[best_numbers].tolist()], every,
        collection.count, collection.average,
        {term: gain.holders for term, gain in zip(wanted, gains, strict=True)}, columns.ordinals.astype(np.int32),
        columns.pieces.astype(np.int8), collection.visible, in_memory=True,
    )  # fmt: skip


def _page(db: Database, tenant_id: UUID, store_id: UUID, revision: int, scope: Scope, after: int) -> list[Row]:
    with db.tenant(tenant_id) as tx:
        return tx.rows(
            "visible_records", tenant=tenant_id, store=store_id, revision=revision, workspace=scope.workspace_id,
            session=scope.session_id, after=after, limit=PAGE,
        )  # fmt: skip
