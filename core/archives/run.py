"""An import as its job meets it. Every statement here holds the job's row before the import's, as a cancellation does."""

import json
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from core.archives.place import Place, digests
from core.archives.report import Tally
from core.errors import NotFound, Unavailable, WrongState
from core.jsontext import dumps
from core.store.database import Database, Tx


@dataclass
class Run:
    """An import as its job meets it: where it stands, and its counts, to be changed and stored by `advance` and `end`.

    `next_item`: how many things of the archive were handled. `place`: from where to read on; `next_item` lies behind it only
    when a worker moved on that knew of no places."""

    tenant_id: UUID
    import_id: UUID
    job_id: UUID
    state: str
    size: int
    filename: str | None
    format: str | None
    next_item: int
    place: Place
    tally: Tally
    open_children: bool = False
    """Whether a child of this very job is still at work."""


def load_run(db: Database, tenant_id: UUID, import_id: UUID, job_id: UUID) -> tuple[Run, bool]:
    """The import, its ended children counted in, and whether there were any. Raises NotFound, WrongState (it is another
    job's by now)."""
    with db.tenant(tenant_id) as tx:
        row = tx.row("get_import", tenant=tenant_id, import_id=import_id)
        if row is None:
            raise NotFound(f"there is no import {import_id}")
        if row["job_id"] != job_id:
            raise WrongState("another job runs this import by now")
        run = Run(
            tenant_id, import_id, job_id, row["state"], row["size"], row["filename"], row["format"], row["next_item"],
            Place.load(row["place"]), Tally.load(row["report"]),
        )  # fmt: skip
        return run, count_in(tx, run)


def count_in(tx: Tx, run: Run) -> bool:
    """Counts the children that have ended, and answers whether there were any."""
    rows = tx.rows("import_children", tenant=run.tenant_id, jobs=[UUID(child) for child in run.tally.sent])
    run.open_children = any(not child["finished"] and child["parent_id"] == run.job_id for child in rows)
    return run.tally.collect(rows, partial(document_names, tx, run.tenant_id))


def document_names(tx: Tx, tenant_id: UUID, child: str) -> list[str]:
    """The ids of the documents in a child's payload; none when that is no longer kept, or was spoilt."""
    payload: str | None = tx.value("job_payload", tenant=tenant_id, job=UUID(child))
    try:
        return [] if payload is None else [str(item["id"]) for item in json.loads(payload)["items"]]
    except (ValueError, TypeError, KeyError):
        return []


def seen_before(db: Database, run: Run) -> set[bytes]:
    """The digests of the conversations before the run's place: 16 bytes a conversation."""
    with db.tenant(run.tenant_id) as tx:
        rows = tx.binary("imported_ids", tenant=run.tenant_id, import_id=run.import_id)
    return digests(row["digests"] for row in rows)


def advance(tx: Tx, run: Run, report: str, then: Place | None = None, ids: bytes = b"") -> bool:
    """Stores the counts (`report`, the tally as JSON) and, if given, the place up to which everything was handled, with the
    digests of the conversations since the run's place. False: the run was paused or cancelled meanwhile, and this
    transaction must not be committed."""
    place, item = (run.place, run.next_item) if then is None else (then, then.items)
    moved = tx.run(
        "advance_import", tenant=run.tenant_id, import_id=run.import_id, job=run.job_id, next_item=run.next_item,
        then_item=item, place=dumps(place.stored()), format=run.format, report=report,
    )  # fmt: skip
    if moved and ids:
        tx.run("insert_imported_ids", tenant=run.tenant_id, import_id=run.import_id, first=run.place.items, digests=ids)
    return bool(moved)


def end(tx: Tx, run: Run, state: str) -> None:
    """Stores the counts and the state after a run. Raises Unavailable when the state changed meanwhile: to be tried again."""
    ended = tx.run(
        "end_import", tenant=run.tenant_id, import_id=run.import_id, job=run.job_id, was=run.state, state=state,
        report=dumps(run.tally.stored()),
    )  # fmt: skip
    if not ended:
        raise Unavailable("the import was paused, resumed or cancelled at the same moment")
