"""Bulk imports: a resumable upload, a preview, and a run that may be paused (contract.md, Routes).

uploading → ready → running ⇄ paused; running → succeeded | failed; any that has not ended → cancelled. A failed import
may be resumed while its bytes are kept: it goes on where it stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from core.archives.model import Conversation, Skipped
from core.archives.reader import Archive, open_archive
from core.archives.report import Tally
from core.archives.request import ImportRequest
from core.archives.run import document_names
from core.archives.uploads import check_kept, open_upload, store_bytes
from core.clock import monotonic, rfc3339
from core.errors import InvalidRequest, NotFound, QuotaExceeded, TooLarge, Unavailable, WrongState
from core.jobs.model import TERMINAL
from core.records.limits import MIB
from core.store.database import Database, Row, Tx
from core.tenants.stores import store_id_of

PREVIEW_CONVERSATIONS = 50
PREVIEW_ITEMS = 1_000
PREVIEW_BYTES = 16 * MIB
PREVIEW_SECONDS = 5.0
QUOTA_RETRY_SECONDS = 60


@dataclass(frozen=True)
class Import:
    """An import as its row and its job say; `as_json` is what clients see."""

    row: Row = field(repr=False)

    @property
    def id(self) -> UUID:
        return self.row["import_id"]

    @property
    def store(self) -> str:
        return self.row["store"]

    @property
    def state(self) -> str:
        return self.row["shown"]

    @property
    def job_id(self) -> UUID | None:
        return self.row["job_id"]

    @property
    def draining(self) -> bool:
        """Whether a job of a run that was paused has not yet come to its end."""
        return self.row["job_state"] is not None and self.row["job_state"] not in TERMINAL

    def as_json(self) -> dict[str, Any]:
        """`{id, store, state, filename?, format?, size, received, job?, progress?, report?, error?, createdAt, updatedAt,
        finishedAt?}`; `size` and `received` are bytes."""
        row = self.row
        entries: dict[str, Any] = {
            "id": str(self.id),
            "store": row["store"],
            "state": self.state,
            "filename": row["filename"],
            "format": row["format"],
            "size": row["size"],
            "received": row["received"],
            "job": None if row["job_id"] is None else str(row["job_id"]),
        }
        if row["progress_unit"] is not None:
            entries["progress"] = {
                "done": row["progress_done"], "total": row["progress_total"], "unit": row["progress_unit"],
            }  # fmt: skip
        if row["report"] is not None:
            entries["report"] = Tally.load(row["report"]).shown()
        if self.state == "failed":
            entries["error"] = row["job_error"]
        for name in ("created_at", "updated_at", "finished_at"):
            entries[name.removesuffix("_at") + "At"] = rfc3339(row[name]) if row[name] else None
        return {name: value for name, value in entries.items() if value is not None}


def create(
    tx: Tx, tenant_id: UUID, store: str, request: ImportRequest, *, import_id: UUID, max_stored_bytes: int | None = None
) -> Import:
    """Announces an upload. Raises NotFound (the store) and QuotaExceeded: what is stored, what open imports announced and
    this one would be more than the tenant may store."""
    store_id = store_id_of(tx, tenant_id, store)
    if max_stored_bytes is not None:
        held = tx.row("announced_bytes", tenant=tenant_id)
        assert held is not None
        if held["stored"] + held["announced"] + request.size > max_stored_bytes:
            raise QuotaExceeded(
                f"{held['stored']} bytes are stored, {held['announced']} announced by open imports, and "
                f"{max_stored_bytes} is this tenant's limit",
                retry_after=QUOTA_RETRY_SECONDS,
            )
    tx.run(
        "insert_import", tenant=tenant_id, import_id=import_id, store=store_id, filename=request.filename,
        size=request.size, format=request.format,
    )  # fmt: skip
    return get(tx, tenant_id, import_id)


def get(tx: Tx, tenant_id: UUID, import_id: UUID) -> Import:
    """With its progress and report up to now. Raises NotFound, also for another tenant's id and when the store was erased."""
    row = tx.row("get_import", tenant=tenant_id, import_id=import_id)
    if row is None or row["store"] is None:
        raise NotFound(f"there is no import {import_id}")
    if row["report"] is not None:
        _count_in(tx, tenant_id, row)
    return Import(row)


def _count_in(tx: Tx, tenant_id: UUID, row: Row) -> None:
    """Adds what has ended since the run last counted: it sleeps while its children work."""
    tally = Tally.load(row["report"])
    rows = tx.rows("import_children", tenant=tenant_id, jobs=[UUID(child) for child in tally.sent])
    if row["job_state"] in TERMINAL:  # children that ended with it wrote nothing, and failed at nothing
        for child in rows:
            if child["state"] == "cancelled":
                del tally.sent[str(child["job_id"])]
    if tally.collect(rows, partial(document_names, tx, tenant_id)):
        row["report"] = tally.stored()
        row["progress_done"] = tally.done_bytes()


def listing(
    tx: Tx, tenant_id: UUID, *, names: Sequence[str] | None = None, before: UUID | None = None, limit: int = 100
) -> list[Import]:
    """Newest first, without reports; `names`: only imports into these stores (`Principal.store_names`)."""
    only = None if names is None else list(names)
    return [Import(row) for row in tx.rows("list_imports", tenant=tenant_id, names=only, before=before, limit=limit)]


def append(tx: Tx, tenant_id: UUID, import_id: UUID, offset: int, data: bytes) -> Import:
    """Puts `data` behind what was received, all of it or nothing.

    Raises NotFound, WrongState (`offset` is not what was received, or the upload is complete) and TooLarge (more than was
    announced)."""
    found = _locked(tx, tenant_id, import_id)
    _expect(found, "uploading")
    if offset != found["received"]:
        raise WrongState(f"{found['received']} bytes were received: go on there, not at {offset}")
    if offset + len(data) > found["size"]:
        raise TooLarge(f"{found['size']} bytes were announced; these would make {offset + len(data)}")
    if data:
        store_bytes(tx, tenant_id, import_id, offset, data)
        tx.run("received_upload", tenant=tenant_id, import_id=import_id, received=offset + len(data))
    return get(tx, tenant_id, import_id)


def preview(db: Database, tenant_id: UUID, import_id: UUID) -> dict[str, Any]:
    """What an import would do, by the archive's first conversations; nothing is written.

    `{format, conversations: [{id, title?, messages, firstAt?, lastAt?}], skipped: [{reason, count, examples}], complete}`;
    `complete`: that is the whole archive. Raises NotFound, WrongState and InvalidRequest (no archive that we can read)."""
    with db.tenant(tenant_id) as tx:
        found = get(tx, tenant_id, import_id)
        row = found.row
        if row["received"] < row["size"]:
            raise WrongState(f"the import is {found.state}: {row['received']} of {row['size']} bytes were received")
        check_kept(tx, tenant_id, import_id, row["size"])
    until = monotonic() + PREVIEW_SECONDS  # to tell the format may take some of it
    stream, raw = open_upload(db, tenant_id, import_id, row["size"])
    archive = open_checked(stream, row["filename"], row["format"])
    tally, shown, complete = Tally(), list[dict[str, Any]](), True
    for count, item in enumerate(archive):
        if (
            len(shown) == PREVIEW_CONVERSATIONS
            or count == PREVIEW_ITEMS
            or (count and (raw.tell() > PREVIEW_BYTES or monotonic() > until))
        ):
            complete = False
            break
        if isinstance(item, Skipped):
            tally.skip(item)
        else:
            shown.append(_shown(item))
    return {
        "format": archive.format,
        "conversations": shown,
        "skipped": tally.shown()["skipped"],
        "complete": complete,
    }


def _shown(conversation: Conversation) -> dict[str, Any]:
    times = [message.at for message in conversation.messages if message.at is not None]
    entries: dict[str, Any] = {
        "id": conversation.id,
        "title": conversation.title,
        "messages": len(conversation.messages),
    }
    if times:
        entries |= {"firstAt": rfc3339(min(times)), "lastAt": rfc3339(max(times))}
    return {name: value for name, value in entries.items() if value is not None}


def open_checked(stream: Any, filename: str | None, expected: str | None) -> Archive:
    """`open_archive`, and InvalidRequest when the archive is not of the format that was announced."""
    archive = open_archive(stream, filename)
    if expected is not None and archive.format != expected:
        raise InvalidRequest.field("format", f"the upload is of the format {archive.format}, not {expected}")
    return archive


def begin(tx: Tx, tenant_id: UUID, import_id: UUID, job_id: UUID, *states: str) -> Import:
    """Makes `job_id` the run of an import that is in one of `states`; returns the import as it was before.

    The job is accepted after this transaction; if that fails, `take_back`. When a paused run has not come to its end it
    simply goes on: `draining` is true, and no new job is needed. Raises NotFound, WrongState."""
    _locked(tx, tenant_id, import_id)
    found = get(tx, tenant_id, import_id)
    if found.state not in states:
        raise _wrong(found.state)
    check_kept(tx, tenant_id, import_id, found.row["size"])
    job = found.job_id if found.draining else job_id
    tx.run("set_import_state", tenant=tenant_id, import_id=import_id, state="running", job=job)
    return found


def take_back(tx: Tx, tenant_id: UUID, before: Import, job_id: UUID) -> None:
    """`begin`'s job was not accepted: the import is as it was before."""
    tx.run(
        "unlink_import",
        tenant=tenant_id,
        import_id=before.id,
        state=before.row["state"],
        job=before.job_id,
        failed=job_id,
    )


def pause(tx: Tx, tenant_id: UUID, import_id: UUID) -> Import:
    """The run sends nothing more; what it has sent is still written, then its job ends. Pausing again changes nothing.

    Raises NotFound, WrongState."""
    _locked(tx, tenant_id, import_id)
    found = get(tx, tenant_id, import_id)
    if found.state == "paused":
        return found
    if found.state != "running":
        raise _wrong(found.state)
    tx.run("set_import_state", tenant=tenant_id, import_id=import_id, state="paused", job=found.job_id)
    return get(tx, tenant_id, import_id)


def cancel(tx: Tx, tenant_id: UUID, import_id: UUID) -> Import:
    """Ends an import that has not ended, with its job and what that has sent; what was written stays. Cancelling again
    changes nothing. Raises NotFound, WrongState, Unavailable (it was resumed at the same moment)."""
    job_id = get(tx, tenant_id, import_id).job_id
    if job_id is not None:
        tx.value("cancel_job", tenant=tenant_id, job=job_id)  # locked before the import, as the run does
    state = _locked(tx, tenant_id, import_id)
    if state["job_id"] != job_id:
        raise Unavailable("the import was resumed at the same moment: cancel it again", retry_after=1)
    found = get(tx, tenant_id, import_id)
    if found.row["state"] == "cancelled":
        return found
    if found.state in ("succeeded", "failed"):
        raise _wrong(found.state)
    tx.run("set_import_state", tenant=tenant_id, import_id=import_id, state="cancelled", job=job_id)
    return get(tx, tenant_id, import_id)


def _locked(tx: Tx, tenant_id: UUID, import_id: UUID) -> Row:
    row = tx.row("lock_import", tenant=tenant_id, import_id=import_id)
    if row is None:
        raise NotFound(f"there is no import {import_id}")
    return row


def _expect(row: Row, state: str) -> None:
    if row["state"] != state:
        raise _wrong(row["state"])


def _wrong(state: str) -> WrongState:
    return WrongState(f"the import is {state}")
