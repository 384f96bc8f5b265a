"""What an importer makes of an archive, whatever its format."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from core.clock import rfc3339

Left = Literal["file", "conversation", "message", "attachment"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message as its author left it. `at`: aware UTC, None when the source gives no time. `id`: the source's."""

    role: str
    content: str
    at: datetime | None
    id: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation with at least one message, in its own order.

    `id` is valid as a `sessionId`: the source's id where it can be. `at` is when the conversation began, for messages
    without a time of their own. Texts hold no NUL and no lone surrogate.
    """

    source: str
    id: str
    title: str | None
    at: datetime | None
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """One thing that was left out: what it was, where it stood in the archive, and why.

    `reason` comes from a small set, so that a report can count by it; `where` is at most a few hundred points.
    """

    item: Left
    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """One conversation's messages of one UTC day (`day` None: undated): exactly one `memory.writeConversation`.

    `at` is the first time in it, and None only for an undated part.
    """

    document_id: str
    session_id: str
    source: str
    day: date | None
    at: datetime | None
    messages: tuple[Message, ...]

    def request(self) -> dict[str, object]:
        """The body (contract.md, Operations): `{messages: [{role, content, at?}], sessionId, id, source}`."""
        return {
            "messages": [_body(message) for message in self.messages],
            "sessionId": self.session_id,
            "id": self.document_id,
            "source": self.source,
        }


def _body(message: Message) -> dict[str, str]:
    body = {"role": message.role, "content": message.content}
    if message.at is not None:
        body["at"] = rfc3339(message.at)
    return body
