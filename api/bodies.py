"""Reading, parsing and validating a body without holding up the loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from core.errors import InvalidRequest
from core.jsontext import loads

INLINE_BYTES = 64 * 1024
"""Bodies up to this are parsed in the loop: a hop to a thread costs more than they do."""
BODY_SECONDS = 60.0
"""For a whole JSON body to arrive."""

_OFTEN_JSON = ("json", "application/x-www-form-urlencoded", "text/plain")
"""What curl and browsers call JSON when nobody tells them its type."""

Parsed = TypeVar("Parsed")


async def read_body(request: Request, parse: Callable[[object], Parsed]) -> Parsed:
    """What `parse` makes of the body's JSON value, in a thread when the body is large.

    Raises whatever `parse` raises, InvalidRequest naming `body` (or a key given twice) for what is no JSON, and what
    `read_bytes` raises.
    """
    body = await read_bytes(request, BODY_SECONDS)
    try:
        if len(body) <= INLINE_BYTES:
            return parse(loads(body))
        return await to_thread.run_sync(lambda: parse(loads(body)))
    except InvalidRequest as error:
        raise _with_type(error, request.headers.get("content-type", "")) from None


async def read_bytes(request: Request, seconds: float) -> bytes:
    """The body as it was sent. Raises 415 for one that is compressed, 408 for one that does not come in `seconds`, 400 for
    one that breaks off."""
    coding = request.headers.get("content-encoding")
    if coding is not None and coding.strip().lower() not in ("", "identity"):
        # Unpacking would need limits of its own, against bodies that are small only while they are packed.
        raise HTTPException(
            415, "the body has a Content-Encoding: send it plain, without that header", {"Accept-Encoding": "identity"}
        )
    try:
        async with asyncio.timeout(seconds):
            return await request.body()
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {seconds:.0f} s; send less at once") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection closed before the body was complete: nothing of it was kept") from None


def _with_type(error: InvalidRequest, content_type: str) -> InvalidRequest:
    """What is no JSON may well have said so: then that is the thing to mend."""
    kind = content_type.partition(";")[0].strip().lower()
    if not kind or kind.endswith(_OFTEN_JSON) or [field.field for field in error.fields] != ["body"]:
        return error
    return InvalidRequest.field("body", f"{error.fields[0].message}; send JSON, not {kind[:80]}")
