"""A store's records as JSON lines.

A line is a record's canonical JSON, byte for byte, so its SHA-256 is the record's `sha256`. JCS writes no line breaks.
"""

from collections.abc import Iterator
from uuid import UUID

from core.errors import NotFound
from core.store.database import Database

PAGE_RECORDS = 500
PAGE_BYTES = 4 * 1024 * 1024
"""Of canonical JSON, about, that is in memory at once."""


def export(db: Database, tenant_id: UUID, store_id: UUID, revision: int) -> Iterator[bytes]:
    """Documents and blocks up to `revision` in write order, each document before its blocks; some lines at a time.

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
        yield "".join(f"{row['canonical']}\n" for row in rows).encode()
