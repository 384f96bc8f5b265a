"""Seals and merges: few large segments instead of many small ones, behind the writes' back.

Packed segments of 1,024 records or more in all become one sealed segment, with a row a term. Neighbours of less than 8,192
that have as many together become one, and so do those of less than 49,152, of at most 65,536: behind its write a record is
written four times in all, once less where many are written at once. Numbers do not change, so what a process has decoded
stays valid.

The work reads in short transactions and writes in one, which takes the store's row lock only at its end, to check that what
it read is still so. Else it is rolled back, whole, and tried again. Two such jobs at once do no harm: one finds a change.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge as merge_sorted
from itertools import groupby, islice
from operator import itemgetter
from uuid import UUID

import numpy as np

from core.errors import Unavailable
from core.faults import Faults
from core.search.lexical.columns import Columns
from core.search.lexical.postings import DOCUMENTS, Inverted, Packed, decode, encode
from core.search.lexical.writing import SEAL
from core.store.database import Database, Row, Tx

TRIES = 5
TIERS = (DOCUMENTS // 8, DOCUMENTS * 3 // 4)
PAGE = 5_000
GARBAGE_PAGE = 5_000
INSERTED = 10_000


class Changed(Exception):
    """What was read is no longer so: an erasure, or another job, came between. The transaction must not commit."""


class Sealer:
    """Brings one store's active build in order. `check` is called between steps, and raises to stop."""

    def __init__(
        self, db: Database, tenant_id: UUID, store_id: UUID, check: Callable[[], None], faults: Faults | None = None
    ) -> None:
        self._db = db
        self._tenant = tenant_id
        self._store = store_id
        self._check = check
        self._faults = faults or Faults()

    def run(self) -> None:
        self._tried(lambda: self._seal(SEAL))
        # A merge takes its time: if much was written meanwhile it is sealed before the next. A little waits for the next job,
        # or a stream of writes would be sealed in small pieces.
        while self._tried(lambda: self._seal(TIERS[0])) or self._tried(self._merge):
            self._check()
        self.collect()

    def _tried(self, step: Callable[[], bool]) -> bool:
        for _ in range(TRIES):
            try:
                return step()
            except Changed:
                self._check()
        raise Unavailable("the index changes faster than it can be sealed")

    def _active(self, tx: Tx) -> Row | None:
        rows = tx.rows("lexical_indexes", tenant=self._tenant, store=self._store)
        return next((row for row in rows if row["state"] == "active"), None)

    def _seal(self, least: int) -> bool:
        """If as many records are packed."""
        with self._db.tenant(self._tenant) as tx:
            index = self._active(tx)
            if index is None or index["loose_from"] - index["sealed_to"] < least:
                return False
            end = min(index["loose_from"], index["sealed_to"] + DOCUMENTS)
            rows = tx.binary(
                "packed_segments", tenant=self._tenant, store=self._store, build=index["build"],
                first=index["sealed_to"], end=end,
            )  # fmt: skip
        if not rows or rows[0]["first_number"] != index["sealed_to"]:
            raise Changed  # another job sealed them between the two statements
        self._check()
        columns = Columns.joined(Columns.load(row) for row in rows)
        parts = ((Packed(row["packed"]).inverted(), row["first_number"] - columns.first) for row in rows)
        inverted = Inverted.joined(parts)
        self._check()
        with self._db.tenant(self._tenant) as tx:
            self._insert(tx, index, columns, inverted.rows())
            self._lock(tx, index)
            self._count(tx.run("delete_segments", **self._sources(rows)), rows)
            self._move(tx, index, columns.end)
            self._faults.hit("index.before")
        return True

    def _merge(self) -> bool:
        with self._db.tenant(self._tenant) as tx:
            index = self._active(tx)
            if index is None:
                return False
            found = tx.rows("sealed_segments", tenant=self._tenant, store=self._store, build=index["build"])
            some = to_merge([row["end_number"] - row["first_number"] for row in found])
            if some is None:
                return False
            rows = tx.binary("segment_columns", **self._sources(found[some]))
        if len(rows) != len(found[some]):
            raise Changed
        columns = Columns.joined(Columns.load(row) for row in rows)
        terms = list(self._merged(rows, columns.first))
        with self._db.tenant(self._tenant) as tx:
            self._insert(tx, index, columns, terms)
            self._lock(tx, index)
            self._count(tx.run("retire_segments", **self._sources(rows)), rows)
            self._move(tx, index, index["sealed_to"])
            self._faults.hit("index.before")
        return True

    def _merged(self, rows: Sequence[Row], first: int) -> Iterator[tuple[str, bytes]]:
        streams = [self._terms(row["segment_id"], row["first_number"] - first) for row in rows]
        for term, entries in groupby(merge_sorted(*streams), key=itemgetter(0)):
            pieces = [(decode(blob), offset) for _, offset, blob in entries]
            documents = np.concatenate([documents + np.uint16(offset) for (documents, _), offset in pieces])
            frequencies = np.concatenate([frequencies.astype(np.uint32) for (_, frequencies), _ in pieces])
            yield term, encode(documents, frequencies)

    def _terms(self, segment_id: int, offset: int) -> Iterator[tuple[str, int, bytes]]:
        """(term, offset, postings) of a sealed segment in the order of its terms."""
        after = ""
        while True:
            self._check()
            with self._db.tenant(self._tenant) as tx:
                page = tx.binary(
                    "segment_postings", tenant=self._tenant, store=self._store, segment=segment_id, after=after,
                    limit=PAGE,
                )  # fmt: skip
            for row in page:
                yield row["term"], offset, row["postings"]
            if len(page) < PAGE:
                return
            after = page[-1]["term"]

    def _insert(
        self, tx: Tx, index: Row, columns: Columns, terms: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]
    ) -> None:
        insert_sealed(tx, self._tenant, self._store, index["build"], columns, terms)
        self._faults.hit("index.copied")

    def _lock(self, tx: Tx, index: Row) -> None:
        """Takes the store's row lock. Raises Changed unless the build is as it was read, but for what came to its end."""
        tx.row("lock_store", tenant=self._tenant, store=self._store)
        now = self._active(tx)
        same = ("build", "epoch", "sealed_to")
        if now is None or any(now[name] != index[name] for name in same):
            raise Changed
        index["loose_from"] = now["loose_from"]

    def _sources(self, rows: Sequence[Row]) -> dict[str, object]:
        return {"tenant": self._tenant, "store": self._store, "segments": [row["segment_id"] for row in rows]}

    def _count(self, touched: int, rows: Sequence[Row]) -> None:
        if touched != len(rows):
            raise Changed

    def _move(self, tx: Tx, index: Row, sealed_to: int) -> None:
        tx.run(
            "move_index", tenant=self._tenant, store=self._store, build=index["build"], sealed_to=sealed_to,
            loose_from=index["loose_from"], layout=1,
        )  # fmt: skip

    def collect(self) -> None:
        """Deletes what is retired, a little at a time. Under the store's row lock, for an erasure rewrites the same rows."""
        place = {"tenant": self._tenant, "store": self._store}
        with self._db.tenant(self._tenant) as tx:
            segments = [row["segment_id"] for row in tx.rows("garbage", **place)]
        for segment in segments:
            left = True
            while left:
                self._check()
                with self._db.tenant(self._tenant) as tx:
                    tx.row("lock_store", **place)
                    left = tx.run("delete_postings", **place, segment=segment, limit=GARBAGE_PAGE) == GARBAGE_PAGE
                    if not left:
                        tx.run("delete_segments", **place, segments=[segment])
        with self._db.tenant(self._tenant) as tx:
            tx.run("delete_retired_indexes", **place)


def insert_sealed(
    tx: Tx,
    tenant_id: UUID,
    store_id: UUID,
    build: int,
    columns: Columns,
    terms: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]],
) -> int:
    """A segment with a row a term; its id."""
    segment: int = tx.value(
        "insert_segment", tenant=tenant_id, store=store_id, build=build, **columns.stored(), packed=None
    )
    rows = iter(terms)
    while page := list(islice(rows, INSERTED)):
        tx.run(
            "insert_postings", tenant=tenant_id, store=store_id, segment=segment, terms=[term for term, _ in page],
            blobs=[blob for _, blob in page],
        )  # fmt: skip
    return segment


def to_merge(sizes: Sequence[int]) -> slice | None:
    """Which neighbours, of segments with these numbers of records, are to become one."""
    for full in TIERS:
        start, total = 0, 0
        for n, size in enumerate(sizes):
            if size >= full:
                start, total = n + 1, 0
                continue
            if total + size > DOCUMENTS:
                start, total = n, 0
            total += size
            if total >= full and n > start:
                return slice(start, n + 1)
    return None
