"""A store's records as JSON lines, with all that is needed to write them anew.

A line is a record's canonical JSON, byte for byte, so its SHA-256 is the record's `sha256`. JCS writes no line breaks. Behind
a conversation's document come its messages, verbatim, a line each:

    {"at": …, "content": …, "document": the document's id, "kind": "memory-message", "ordinal": from 0, "role": …}
"""

from collections.abc import Iterator
from uuid import UUID

from core.errors import NotFound
from core.jsontext import canonical
from core.store.database import Database, Row

PAGE_RECORDS = 500
PAGE_BYTES = 4 * 1024 * 1024
"""Of canonical JSON, about, that is in memory at once."""
PAGE_MESSAGES = 200


def export(db: Database, tenant_id: UUID, store_id: UUID, revision: int) -> Iterator[bytes]:
    """Documents and blocks up to `revision` in write order, each document and its messages before its blocks; some lines at
    a time.

    No connection is held between pages. Raises NotFound when the store is erased meanwhile."""
    place = {"tenant": tenant_id, "store": store_id}
    position, ordinal = -1, -1
    while True:
        with db.tenant(tenant_id) as tx:
            if tx.value("store_revision", **place) is None:
                raise NotFound("the store was erased")
            rows = tx.rows(
                "export_records", **place, revision=revision, position=position, ordinal=ordinal, limit=PAGE_RECORDS,
                bytes=PAGE_BYTES,
            )  # fmt: skip
        if not rows:
            return
        position, ordinal = rows[-1]["position"], rows[-1]["ordinal"]
        lines: list[str] = []
        for row in rows:
            lines.append(f"{row['canonical']}\n")
            if row["conversation"] is not None:
                yield "".join(lines).encode()
                yield from _messages(db, tenant_id, store_id, row["conversation"])
                lines = []
        if lines:
            yield "".join(lines).encode()


def _messages(db: Database, tenant_id: UUID, store_id: UUID, document: str) -> Iterator[bytes]:
    after = -1
    while True:
        with db.tenant(tenant_id) as tx:
            rows = tx.rows(
                "get_messages", tenant=tenant_id, store=store_id, document=document, after=after, limit=PAGE_MESSAGES
            )
        if rows:
            yield "".join(_message(document, row) for row in rows).encode()
        if len(rows) < PAGE_MESSAGES:
            return
        after = rows[-1]["ordinal"]


def _message(document: str, row: Row) -> str:
    said = {name: value for name, value in row.items() if value is not None}
    return f"{canonical({**said, 'document': document, 'kind': 'memory-message'})}\n"
