"""Ids that come out the same for every import of the same export (contract.md, Archives)."""

import json
import re
from datetime import date
from uuid import UUID, uuid5

from core.records.limits import SCOPE_POINTS

NAMESPACE = UUID("6f1d3c52-8a0e-5b7e-9c41-2f6f0f1b7a6d")
"""Fixed for ever: another value would make a second copy of everything ever imported."""

_INVALID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def session_id(source: str, conversation: str) -> str:
    """The source's conversation id where it is a valid `sessionId` (contract.md, Operations), else a stable UUID."""
    if 1 <= len(conversation) <= SCOPE_POINTS and not _INVALID.search(conversation):
        return conversation
    return _uuid([source, conversation])


def content_id(source: str, entry: object) -> str:
    """A stable id for a conversation that has none of its own: the same content, the same id."""
    return _uuid([source, None, entry])


def document_id(source: str, conversation: str, day: date | None, split: int) -> str:
    """UUIDv5 of (source, conversation, day); `split` is 1 unless one day needs several documents."""
    name: list[object] = [source, conversation, day.isoformat() if day else None]
    return _uuid(name if split == 1 else [*name, split])


def _uuid(name: list[object]) -> str:
    # JSON keeps the parts of the name apart and turns a lone surrogate into ASCII.
    return str(uuid5(NAMESPACE, json.dumps(name, sort_keys=True)))
