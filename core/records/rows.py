"""The rows of many documents as columns, inserted by one statement a table (unnest: 77,000 rows/s measured)."""

from datetime import datetime
from hashlib import sha256
from uuid import UUID

from core.records.build import NewDocument
from core.store.database import Tx, as_text

_NUMBERS = frozenset({"numbers", "revisions", "positions", "ordinals", "starts", "ends"})


class Rows:
    """Gathers documents with their blocks and messages; `insert` writes them all."""

    def __init__(self) -> None:
        self._documents: list[tuple[object, ...]] = []
        self._records: list[tuple[object, ...]] = []
        self._messages: list[tuple[object, ...]] = []
        self._entities: list[tuple[object, ...]] = []

    def add(self, document: NewDocument, revision: int, position: int, number: int) -> None:
        """`number`: the first block's; the others follow."""
        shared: tuple[str, str | None, str | None, str | None, datetime] = (
            document.scope,
            document.workspace_id,
            document.session_id,
            document.date,
            document.event_at,
        )
        self._documents.append(
            (document.id, revision, position, *shared, document.canonical, bytes.fromhex(document.sha256))
        )
        for n, block in enumerate(document.blocks):
            place = (block.id, number + n, revision, position, n, document.id, block.start, block.end)
            embedded = sha256((block.content or document.title).encode()).digest()
            self._records.append((*place, *shared, block.canonical, bytes.fromhex(block.sha256), embedded))
            self._entities += [(entity, number + n) for entity in block.entities]
        for n, message in enumerate(document.messages):
            self._messages.append((document.id, n, message.role, message.content, message.at))

    def insert(self, tx: Tx, tenant_id: UUID, store_id: UUID) -> None:
        place = ("scopes", "workspaces", "sessions", "dates", "events", "canonicals", "hashes")
        _insert(tx, "insert_documents", ("ids", "revisions", "positions", *place), self._documents, tenant_id, store_id)
        names = (
            "ids",
            "numbers",
            "revisions",
            "positions",
            "ordinals",
            "documents",
            "starts",
            "ends",
            *place,
            "contents",
        )
        _insert(tx, "insert_records", names, self._records, tenant_id, store_id)
        names = ("documents", "ordinals", "roles", "contents", "ats")
        _insert(tx, "insert_messages", names, self._messages, tenant_id, store_id)
        _insert(tx, "insert_entities", ("entities", "numbers"), self._entities, tenant_id, store_id)


def _insert(
    tx: Tx, query: str, names: tuple[str, ...], rows: list[tuple[object, ...]], tenant_id: UUID, store_id: UUID
) -> None:
    if rows:
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        values = {name: as_text(column) if name in _NUMBERS else list(column) for name, column in columns.items()}
        tx.run(query, tenant=tenant_id, store=store_id, **values)
