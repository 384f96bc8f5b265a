"""A build anew from the records: for a store without an index, for another version of the analysis, or on demand.

It grows beside the active build, which writes go on to extend. Each step reads a run of records in short transactions and
adds one sealed segment; the last one takes what is left under the store's row lock and makes the new build the active one.
A build that was left half made is gone on with.
"""

from collections.abc import Callable
from uuid import UUID

from core.errors import NotFound, Unavailable
from core.faults import Faults
from core.search.lexical.columns import Columns, Indexed
from core.search.lexical.postings import DOCUMENTS, Inverted
from core.search.lexical.sealing import TRIES, Changed, Sealer, insert_sealed
from core.search.lexical.writing import (
    PUBLIC,
    Written,
    add_segments,
    analysed,
    ask_for_job,
    join,
    request_job,
    scope_codes,
    segment,
)
from core.store.database import Database, Row, Tx

PAGE = 2_048
LAST = 2_048
"""Records that may be indexed while the store is locked."""


def maintain(
    db: Database,
    tenant_id: UUID,
    store_id: UUID,
    check: Callable[[], None],
    *,
    rebuild: bool = False,
    faults: Faults | None = None,
) -> None:
    """Brings a store's index in order: builds it when the configuration asks for another version than it has (`rebuild`: in
    any case), seals, merges, and deletes what is no longer used. Raises NotFound (no such store), Unavailable, and what
    `check` raises between steps."""
    builder = _Builder(db, tenant_id, store_id, check, faults or Faults())
    if rebuild or builder.needed():
        builder.run()
    Sealer(db, tenant_id, store_id, check, faults).run()


def go_on(tx: Tx, tenant_id: UUID, store_id: UUID) -> None:
    """In the transaction that ends a job of `maintain`, under the store's row lock: asks for another when there is something
    to do again. Whoever wrote while the job ran saw it, and asked for none; whoever writes later sees that it has ended.
    After a job that failed, the next write asks."""
    place = {"tenant": tenant_id, "store": store_id}
    wanted = tx.row("wanted_index", **place)
    if wanted is None or not wanted["next_number"]:
        return
    indexes = tx.rows("lexical_indexes", **place)
    active = next((index for index in indexes if index["state"] == "active"), None)
    if active is None:
        request_job(tx, tenant_id, store_id)
    else:
        ask_for_job(tx, tenant_id, store_id, active, wanted["version"])


class _Builder:
    def __init__(
        self, db: Database, tenant_id: UUID, store_id: UUID, check: Callable[[], None], faults: Faults
    ) -> None:
        self._db = db
        self._tenant = tenant_id
        self._store = store_id
        self._check = check
        self._faults = faults

    def _place(self) -> dict[str, UUID]:
        return {"tenant": self._tenant, "store": self._store}

    def needed(self) -> bool:
        with self._db.tenant(self._tenant) as tx:
            wanted, indexes = self._state(tx)
        active = next((index for index in indexes if index["state"] == "active"), None)
        # A store in which nothing was ever written gets its index with the first write.
        return wanted["next_number"] > 0 and (active is None or active["version"] != wanted["version"])

    def _state(self, tx: Tx) -> tuple[Row, list[Row]]:
        wanted = tx.row("wanted_index", **self._place())
        if wanted is None:
            raise NotFound("there is no such store")
        return wanted, tx.rows("lexical_indexes", **self._place())

    def run(self) -> None:
        for _ in range(TRIES):
            try:
                index = self._begin()
                while not self._last(index):
                    self._step(index)
                return
            except Changed:
                self._check()
        raise Unavailable("the records change faster than they can be indexed")

    def _begin(self) -> Row:
        """The build in the making, of the version that is wanted now."""
        with self._db.tenant(self._tenant) as tx:
            tx.row("lock_store", **self._place())
            wanted, indexes = self._state(tx)
            for index in indexes:
                if index["state"] == "building":
                    if index["version"] == wanted["version"]:
                        return index
                    tx.run("set_index_state", **self._place(), build=index["build"], state="retired")
            build = 1 + max((index["build"] for index in indexes), default=0)
            tx.run("insert_index", **self._place(), build=build, version=wanted["version"], state="building")
            return next(index for index in self._state(tx)[1] if index["build"] == build)

    def _step(self, index: Row) -> None:
        """One sealed segment of the next records, as many as there are."""
        first: int = index["sealed_to"]
        with self._db.tenant(self._tenant) as tx:
            wanted, _ = self._state(tx)
        end = min(wanted["next_number"], first + DOCUMENTS)
        pieces: list[tuple[Columns, Inverted]] = []
        for start in range(first, end, PAGE):
            self._check()
            pieces.append(segment(self._analysed(index, start, min(start + PAGE, end)), start, min(start + PAGE, end)))
        columns, inverted = join(pieces)
        with self._db.tenant(self._tenant) as tx:
            insert_sealed(tx, self._tenant, self._store, index["build"], columns, inverted.rows())
            self._faults.hit("index.copied")
            self._lock(tx, index)
            tx.run("move_index", **self._place(), build=index["build"], sealed_to=end, loose_from=end, layout=1)
            self._faults.hit("index.before")
        index |= {"sealed_to": end, "loose_from": end, "layout": index["layout"] + 1}

    def _analysed(self, index: Row, start: int, stop: int) -> list[Indexed]:
        with self._db.tenant(self._tenant) as tx:
            records = self._read(tx, start, stop)
            if any(record.scope[0] not in PUBLIC for record in records):
                tx.row("lock_store", **self._place())  # new codes are given under it
            codes = scope_codes(tx, self._tenant, self._store, (record.scope for record in records))
        return analysed(records, codes, index["version"])

    def _read(self, tx: Tx, start: int, stop: int) -> list[Written]:
        rows = tx.rows("indexable_records", **self._place(), first=start, end=stop)
        return [
            Written(
                row["number"], row["id"], row["revision"], row["ordinal"],
                (row["scope"], row["workspace_id"], row["session_id"]), row["canonical"],
            )
            for row in rows
        ]  # fmt: skip

    def _lock(self, tx: Tx, index: Row) -> Row:
        tx.row("lock_store", **self._place())
        wanted, indexes = self._state(tx)
        same = ("state", "epoch", "sealed_to")
        now = next((entry for entry in indexes if entry["build"] == index["build"]), None)
        if now is None or any(now[name] != index[name] for name in same) or now["version"] != wanted["version"]:
            raise Changed
        return wanted

    def _last(self, index: Row) -> bool:
        """Takes the build into use if few records are left; these are indexed on the way."""
        first: int = index["sealed_to"]
        with self._db.tenant(self._tenant) as tx:
            end: int = self._lock(tx, index)["next_number"]
            if end - first > LAST:
                return False
            records = self._read(tx, first, end)
            codes = scope_codes(tx, self._tenant, self._store, (record.scope for record in records))
            if end > first:
                indexed = analysed(records, codes, index["version"])
                add_segments(tx, self._tenant, self._store, index, indexed, first, end)
            for entry in self._state(tx)[1]:
                if entry["state"] == "active":
                    tx.run("set_index_state", **self._place(), build=entry["build"], state="retired")
            tx.run("set_index_state", **self._place(), build=index["build"], state="active")
            self._faults.hit("index.before")
        return True
