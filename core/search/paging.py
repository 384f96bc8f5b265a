"""Pages of a search's records, and the cursors that lead from one to the next (memory-agent.md §3)."""

import base64
import binascii
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from core.errors import InvalidRequest
from core.jsontext import canonical
from core.text import cut_units, units

PAGE_RECORDS = 20
PAGE_UNITS = 12_000
RECORD_UNITS = 4_000
"""Of one record's text, at most its beginning of this length is shown."""

_TOKEN = struct.Struct(">BIQ16s")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Shown:
    """A record on a page: `text` is the beginning of its content."""

    id: str
    text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Page:
    """`next_offset` None: the last page. `truncated`: more remain, or a text was cut."""

    records: list[Shown]
    next_offset: int | None

    @property
    def truncated(self) -> bool:
        return self.next_offset is not None or any(record.cut for record in self.records)


def page(found: Sequence[tuple[str, str]], offset: int = 0) -> Page:
    """The page that begins at `offset` of the (id, content) found: at most 20 records and 12,000 units of text.

    The last record is cut to fit, and the next page starts after it. Raises InvalidRequest (an offset beyond the result)."""
    if offset and offset >= len(found):
        raise InvalidRequest.field("cursor", "lies beyond the result; start again without it")
    records: list[Shown] = []
    room = PAGE_UNITS
    for own_id, content in found[offset : offset + PAGE_RECORDS]:
        text = cut_units(content, min(room, RECORD_UNITS))
        if content and not text:
            break  # not one character fits any more
        records.append(Shown(own_id, text, text != content))
        room -= units(text)
    end = offset + len(records)
    return Page(records, end if end < len(found) else None)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page of one search begins. It holds for the store, revision, scope and query it was made for."""

    offset: int
    revision: int
    digest: bytes

    def token(self) -> str:
        packed = _TOKEN.pack(_VERSION, self.offset, self.revision, self.digest)
        return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()

    def check(self, digest: bytes) -> None:
        """Raises InvalidRequest unless this cursor was made for the search of `digest`."""
        if self.digest != digest:
            raise InvalidRequest.field("cursor", "belongs to another search; send it with the same query and scope")


def search_digest(store: str, revision: int, scope: Mapping[str, Any], query: Mapping[str, Any]) -> bytes:
    """16 bytes that name a search. `query` is all of the request that decides what is found, and in which order."""
    bound = {"store": store, "revision": revision, "scope": dict(scope), "query": dict(query)}
    return sha256(canonical(bound).encode()).digest()[:16]


def parse_cursor(token: str) -> Cursor:
    """Raises InvalidRequest for what no search gave out."""
    try:
        packed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        version, offset, revision, digest = _TOKEN.unpack(packed)
    except (binascii.Error, struct.error, ValueError):
        version, offset, revision, digest = 0, 0, 0, b""
    if version != _VERSION:
        raise InvalidRequest.field("cursor", "is no cursor that a search gave out")
    return Cursor(offset, revision, digest)
