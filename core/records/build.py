"""From an accepted request to its records: canonical JSON, hashes and byte ranges (contract.md, The record)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from core.clock import rfc3339
from core.jsontext import quote, sha256_hex
from core.records import blocks, dates, packing
from core.records.limits import DOCUMENT_ID, TITLE_POINTS, TITLE_UNITS
from core.records.model import ConversationRequest, Scope, WriteRequest
from core.search.entities import entities
from core.text import SPACES, cut_units, size, trim

# From the first visible character to the end of its line, or as far as a title goes.
_FIRST_LINE = re.compile(f"[^{SPACES}][^\n\r\u2028\u2029]{{0,{TITLE_POINTS - 1}}}")


@dataclass(slots=True)
class NewBlock:
    """A searchable `memory-record`. `start` and `end` are its bytes in the document's text.

    `messages` are the indexes of the messages it holds lines of; empty for a written text. `entities`: the names in it.
    """

    id: str
    canonical: str
    sha256: str
    content: str
    start: int
    end: int
    messages: tuple[int, ...] = ()
    entities: tuple[str, ...] = ()


@dataclass(slots=True)
class NewMessage:
    """A message as the client sent it."""

    role: str
    content: str
    at: str | None


@dataclass(slots=True)
class NewDocument:
    """A document with its blocks, ready to be committed.

    `date` is `YYYY-MM-DD`, of daily records only. `event_at` has milliseconds. `sha256` is hex. `size` is the bytes of
    all canonical records and verbatim messages. `messages` is empty for a written text.
    """

    id: str
    canonical: str
    sha256: str
    scope: Scope
    workspace_id: str | None
    session_id: str | None
    date: str | None
    event_at: datetime
    source: str | None
    title: str
    blocks: list[NewBlock]
    messages: list[NewMessage]
    size: int


def build_write(request: WriteRequest, *, document_id: str, accepted_at: datetime) -> NewDocument:
    """The document and blocks of memory.write; `document_id` is `request.id` or a new one."""
    match = _FIRST_LINE.search(request.text)
    pieces = [(span.text, span.start, span.end, ()) for span in blocks.split(request.text)]
    return _build(
        request,
        document_id,
        accepted_at,
        title=trim(match[0]) if match else "Untitled",
        text=request.text,
        pieces=pieces,
        event_at=None if request.at is None else dates.parse(request.at),
        form="text",
        messages=[],
    )


def build_conversation(request: ConversationRequest, *, document_id: str, accepted_at: datetime) -> NewDocument:
    """The document, chunks and verbatim messages of memory.writeConversation. Raises TooLarge (packed over 4 MiB)."""
    packed = packing.pack(request.messages, request.session_id)
    return _build(
        request,
        document_id,
        accepted_at,
        title=cut_units(f"Conversation {request.session_id}", TITLE_UNITS),
        text=packed.text,
        pieces=packed.chunks,
        event_at=packed.first_at,
        form="conversation",
        messages=[NewMessage(message.role, message.content, message.at) for message in request.messages],
    )


def block_id(document_id: str, n: int) -> str:
    """Block n (from 0) of a document."""
    return f"{document_id}-b{n:04d}"


def _build(
    request: WriteRequest | ConversationRequest,
    document_id: str,
    accepted_at: datetime,
    *,
    title: str,
    text: str,
    pieces: Iterable[tuple[str, int, int, tuple[int, ...]]],
    event_at: datetime | None,
    form: str,
    messages: list[NewMessage],
) -> NewDocument:
    if DOCUMENT_ID.fullmatch(document_id) is None:
        raise ValueError(f"{document_id!r} is not a document id")
    moment = dates.to_milliseconds(accepted_at if event_at is None else event_at)
    event = rfc3339(moment)
    date = event[:10] if request.scope == "daily" else None
    shape = _Shape(request, title, event if event_at is None else rfc3339(accepted_at), event, date, form)

    document = shape.write("memory-document", "archived", document_id, text)
    sha256 = sha256_hex(document)
    total = size(document) + sum(size(message.role) + size(message.content) for message in messages)
    built: list[NewBlock] = []
    for n, (content, start, end, indexes) in enumerate(pieces):
        own_id = block_id(document_id, n)
        parent = f',"parent":{{"end":{end},"id":"{document_id}","sha256":"{sha256}","start":{start}}}'
        block = shape.write("memory-record", "active", own_id, content, parent)
        total += size(block)
        named = tuple(entities(content))
        built.append(NewBlock(own_id, block, sha256_hex(block), content, start, end, indexes, named))
    return NewDocument(
        id=document_id,
        canonical=document,
        sha256=sha256,
        scope=request.scope,
        workspace_id=request.workspace_id,
        session_id=request.session_id,
        date=date,
        event_at=moment,
        source=request.source or None,
        title=title,
        blocks=built,
        messages=messages,
        size=total,
    )


class _Shape:
    """Writes the records of one document, which differ in few fields, in canonical form.

    By hand, keys in order, because a bulk write is limited by this: a fifth of the time of `jsontext.canonical`, to
    which the tests hold it. What is not quoted here is free of characters that JSON escapes.
    """

    __slots__ = ("_after_content", "_after_data", "_after_id", "_after_state", "_origin")

    def __init__(
        self,
        request: WriteRequest | ConversationRequest,
        title: str,
        accepted: str,
        event: str,
        date: str | None,
        form: str,
    ) -> None:
        session = "" if request.session_id is None else quote(request.session_id)
        self._after_content = f',"createdAt":"{accepted}","data":{{"eventAt":"{event}","format":"{form}"'
        self._origin = (f',"session":{session}' if session else "") + (
            f',"source":{quote(request.source)}' if request.source else ""
        )
        self._after_data = "}" if date is None else f'}},"date":"{date}"'
        self._after_id = f',"scope":"{request.scope}"' + (f',"sessionId":{session}' if session else "") + ',"signals":1'
        self._after_state = f',"title":{quote(title)},"updatedAt":"{accepted}","version":1' + (
            "}" if request.workspace_id is None else f',"workspaceId":{quote(request.workspace_id)}}}'
        )

    def write(self, kind: str, state: str, own_id: str, content: str, parent: str = "") -> str:
        return (
            f'{{"content":{quote(content)}{self._after_content}{parent}{self._origin}{self._after_data}'
            f',"id":"{own_id}","kind":"{kind}"{self._after_id},"state":"{state}"{self._after_state}'
        )
