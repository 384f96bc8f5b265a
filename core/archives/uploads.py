"""An uploaded archive: kept in rows of 1 MiB, read like a file."""

import io
from typing import TYPE_CHECKING
from uuid import UUID

from core.errors import NotFound
from core.records.limits import MIB
from core.store.database import Database, Tx

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = MIB

GONE = "the uploaded bytes are no longer kept: upload the archive again"


def store_bytes(tx: Tx, tenant_id: UUID, import_id: UUID, offset: int, data: bytes) -> None:
    """Puts `data` behind the first `offset` bytes. The caller holds the import's row lock. Raises NotFound."""
    chunk, length = divmod(offset, CHUNK_BYTES)
    if length:
        head, data = data[: CHUNK_BYTES - length], data[CHUNK_BYTES - length :]
        place = {"tenant": tenant_id, "import_id": import_id, "chunk": chunk, "length": length}
        if not tx.run("extend_upload", **place, bytes=head):
            raise NotFound(GONE)
        chunk += 1
    if data:
        pieces = [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]
        chunks = list(range(chunk, chunk + len(pieces)))
        tx.run("insert_upload", tenant=tenant_id, import_id=import_id, chunks=chunks, bytes=pieces)


def check_kept(tx: Tx, tenant_id: UUID, import_id: UUID, received: int) -> None:
    """Raises NotFound when rows of the upload have been pruned."""
    if tx.value("upload_rows", tenant=tenant_id, import_id=import_id) != -(-received // CHUNK_BYTES):
        raise NotFound(GONE)


def open_upload(db: Database, tenant_id: UUID, import_id: UUID, size: int) -> "tuple[io.BufferedReader, Upload]":
    """The upload as a buffered file, and the raw one below it, which knows how far the reading is."""
    raw = Upload(db, tenant_id, import_id, size)
    return io.BufferedReader(raw, CHUNK_BYTES), raw


class Upload(io.RawIOBase):
    """Fetches the row that is needed in a transaction of its own: no connection is held between two reads.

    Reading raises NotFound when the bytes are no longer kept, and Unavailable."""

    def __init__(self, db: Database, tenant_id: UUID, import_id: UUID, size: int) -> None:
        self._db = db
        self._tenant = tenant_id
        self._import = import_id
        self._size = size
        self._position: int = 0
        self._chunk: int = -1
        self._bytes = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError("a position before the start")  # zipfile looks for its end this way in short files
        self._position = start + offset
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        if self._position >= self._size:
            return 0
        chunk, start = divmod(self._position, CHUNK_BYTES)
        if chunk != self._chunk:
            self._bytes, self._chunk = self._fetch(chunk), chunk
        piece = self._bytes[start : start + len(view)]
        view[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _fetch(self, chunk: int) -> bytes:
        with self._db.tenant(self._tenant) as tx:
            found: bytes | None = tx.value("upload_chunk", tenant=self._tenant, import_id=self._import, chunk=chunk)
        if found is None or len(found) != min(CHUNK_BYTES, self._size - chunk * CHUNK_BYTES):
            raise NotFound(GONE)
        return found
