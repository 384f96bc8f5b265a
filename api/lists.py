"""Lists: `{items, nextCursor?}`, `limit` 1 to 1,000, keyset order (contract.md, Routes)."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, cast

from fastapi import Query

from core.errors import InvalidRequest
from core.text import check_text

LIMIT_DEFAULT = 100
LIMIT_LARGEST = 1_000
CURSOR_CHARACTERS = 500

Limit = Annotated[int, Query(ge=1, le=LIMIT_LARGEST, description="The most items of one page.")]
Cursor = Annotated[str | None, Query(description="`nextCursor` of the page before.", max_length=CURSOR_CHARACTERS)]

Item = TypeVar("Item")


def page(
    rows: Sequence[Item], limit: int, *, route: str, key: Callable[[Item], list[Any]], show: Callable[[Item], Any]
) -> dict[str, Any]:
    """Of up to `limit + 1` rows the first `limit`, with a cursor when there are more; `key` is the last row's keyset."""
    shown = rows[:limit]
    body: dict[str, Any] = {"items": [show(row) for row in shown]}
    if len(rows) > limit:
        body["nextCursor"] = encode(route, key(shown[-1]))
    return body


def encode(route: str, key: list[Any]) -> str:
    """A cursor that only `decode` of the same route reads."""
    return base64.urlsafe_b64encode(json.dumps([route, *key], separators=(",", ":")).encode()).decode().rstrip("=")


def decode(route: str, cursor: str | None, kinds: Sequence[type]) -> list[Any] | None:
    """The keyset of a cursor, its values of these types; None without one. Raises InvalidRequest naming `cursor`."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        entries = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or not entries:
        raise refused()
    name, *key = cast("list[Any]", entries)
    if (
        name != route
        or len(key) != len(kinds)
        or any(type(value) is not kind for value, kind in zip(key, kinds, strict=True))
    ):
        raise refused()
    for value in key:
        if isinstance(value, str):
            check_text(value, "cursor")
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise refused()
    return key


def refused() -> InvalidRequest:
    """What a cursor deserves that is none of this list's."""
    return InvalidRequest.field("cursor", "is not a nextCursor of this list; leave it out to start anew")
