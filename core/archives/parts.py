"""A conversation as `memory.writeConversation` requests, one a UTC day (contract.md, Archives).

Everything here depends on the conversation alone: the same export gives the same ids and bodies, whenever and wherever
it is imported.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain

from core.archives.identity import document_id, session_id
from core.archives.model import Conversation, Message, Part
from core.records.limits import BODY_BYTES, CONTENT_BYTES, LINE_LEAST_UNITS, MESSAGES, ROLE_POINTS, TEXT_BYTES
from core.text import size, units

_NOT_IN_ROLE = re.compile(r"[\s:\x00-\x1f\x7f-\x9f]+")
# Of each chunk in the packed text, apart from the session and the lines.
_HEADING_BYTES = len("Conversation  on YYYY/MM/DD (Mon) HH:MM:\n\n\n")
_MESSAGE_JSON_BYTES = len('{"role": "", "content": "", "at": "0000-00-00T00:00:00.000Z"}, ')
_BODY_JSON_BYTES = 4096


def parts(conversation: Conversation) -> list[Part]:
    """The requests in order of their days' first messages; each within the limits of writeConversation.

    A message without a time belongs to the day of the timed message before it, else to the day the conversation began,
    else to no day. A content over 1 MiB becomes several messages; a day over the other limits several parts, numbered
    in their ids from the second on.
    """
    session = session_id(conversation.source, conversation.id)
    result: list[Part] = []
    for day, (since, messages) in _days(conversation).items():
        for split, group in enumerate(_groups(messages, session), start=1):
            dated = _dated(group, since)
            result.append(
                Part(
                    document_id=document_id(conversation.source, conversation.id, day, split),
                    session_id=session,
                    source=conversation.source,
                    day=day,
                    at=next((message.at for message in dated if message.at), None),
                    messages=tuple(dated),
                )
            )
    return result


def _days(conversation: Conversation) -> dict[date | None, tuple[datetime | None, list[Message]]]:
    """Messages by UTC day, with the time by which the day was first known."""
    days: dict[date | None, tuple[datetime | None, list[Message]]] = {}
    last = conversation.at
    for message in conversation.messages:
        last = message.at or last
        day = last.astimezone(UTC).date() if last else None
        days.setdefault(day, (last, []))[1].append(message)
    return days


def _dated(messages: list[Message], since: datetime | None) -> list[Message]:
    """With a time on the first message when none has one: else the document would be dated by its import."""
    if since is None or any(message.at for message in messages):
        return messages
    return [replace(messages[0], at=since), *messages[1:]]


def _groups(messages: list[Message], session: str) -> Iterator[list[Message]]:
    """Runs of messages that fit one request each, as long as they can be."""
    group: list[Message] = []
    packed = body = 0
    for message in chain.from_iterable(_pieces(message) for message in messages):
        more_packed, more_body = _packed_bytes(message, session), _body_bytes(message)
        if group and (
            len(group) == MESSAGES
            or packed + more_packed > TEXT_BYTES
            or body + more_body > BODY_BYTES - _BODY_JSON_BYTES
        ):
            yield group
            group, packed, body = [], 0, 0
        group.append(message)
        packed, body = packed + more_packed, body + more_body
    yield group


def _pieces(message: Message) -> Iterator[Message]:
    """The message with a valid role, cut where its content is too long; the pieces join to the original content."""
    role = _NOT_IN_ROLE.sub("-", message.role)[:ROLE_POINTS] or "unknown"
    raw = message.content.encode()
    start = 0
    while len(raw) - start > CONTENT_BYTES:
        end = start + CONTENT_BYTES
        while raw[end] & 0xC0 == 0x80:  # inside a code point
            end -= 1
        yield replace(message, role=role, content=raw[start:end].decode())
        start = end
    yield replace(message, role=role, content=raw[start:].decode())


def _packed_bytes(message: Message, session: str) -> int:
    """At most this many bytes of packed text: every line counted as if it had a chunk and its heading to itself."""
    line = len(message.role) + len(": ") + units(message.content)
    lines = 1 + line // LINE_LEAST_UNITS  # packing cuts only beyond so many units
    text = size(message.role) + len(": ") + size(message.content)
    return text + lines * (_HEADING_BYTES + size(session))


def _body_bytes(message: Message) -> int:
    """At most this many bytes of JSON, whichever way its writer escapes."""
    return len(json.dumps(message.role)) + len(json.dumps(message.content)) + _MESSAGE_JSON_BYTES
