"""Reading stored records back, exactly as they were committed."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.clock import rfc3339
from core.errors import Erased, InvalidRequest, NotFound
from core.store.database import Row, Tx


@dataclass(frozen=True)
class StoredRecord:
    """One version of a document or block: its exact canonical JSON and its SHA-256 (hex)."""

    id: str
    revision: int
    canonical: str
    sha256: str
    is_document: bool


def get_record(tx: Tx, tenant_id: UUID, store_id: UUID, record_id: str, revision: int | None = None) -> StoredRecord:
    """The newest version, or the one at `revision`. Raises NotFound, Erased."""
    row = tx.row("get_record", tenant=tenant_id, store=store_id, id=record_id, revision=revision)
    if row is None:
        erasure = tx.row("get_erasure", tenant=tenant_id, store=store_id, id=record_id)
        if erasure is not None:
            raise Erased(f"{record_id} was erased at {rfc3339(erasure['erased_at'])}")
        raise NotFound(f"there is no record {record_id}" + ("" if revision is None else f" at revision {revision}"))
    return StoredRecord(row["id"], row["revision"], row["canonical"], row["sha256"].hex(), row["is_document"])


def list_records(
    tx: Tx,
    tenant_id: UUID,
    store_id: UUID,
    *,
    after: tuple[int, int] = (-1, -1),
    revision: int | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Documents and blocks in write order, each document before its blocks; what follows the key `after`.

    The private entries `position` and `ordinal` are the key of the next page. Raises NotFound, InvalidRequest."""
    newest = tx.value("store_revision", tenant=tenant_id, store=store_id)
    if newest is None:
        raise NotFound("there is no such store")
    if revision is not None and revision > newest:
        raise InvalidRequest.field("revision", f"the store is at revision {newest}: ask for at most that")
    rows = tx.rows(
        "list_records",
        tenant=tenant_id,
        store=store_id,
        position=after[0],
        ordinal=after[1],
        revision=newest if revision is None else revision,
        limit=limit,
    )
    return [_entry(row) for row in rows]


def get_messages(
    tx: Tx, tenant_id: UUID, store_id: UUID, document_id: str, *, after: int = -1, limit: int = 100
) -> list[dict[str, Any]]:
    """A conversation's messages verbatim, in order, each with its `ordinal` (from 0). Raises NotFound, Erased."""
    document = get_record(tx, tenant_id, store_id, document_id)
    if not document.is_document:
        raise NotFound(f"{document_id} is a block: ask for its document's messages")
    rows = tx.rows("get_messages", tenant=tenant_id, store=store_id, document=document_id, after=after, limit=limit)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _entry(row: Row) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": row["id"],
        "kind": row["kind"],
        "revision": row["revision"],
        "scope": row["scope"],
        "workspaceId": row["workspace_id"],
        "sessionId": row["session_id"],
        "date": row["date"].isoformat() if row["date"] else None,
        "eventAt": rfc3339(row["event_at"]),
        "state": row["state"],
        "sha256": row["sha256"].hex(),
        "bytes": row["bytes"],
        "document": row["document_id"],
    }
    public = {name: value for name, value in entry.items() if value is not None}
    return public | {"position": row["position"], "ordinal": row["ordinal"]}
