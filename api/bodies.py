"""Reading, parsing and validating a JSON body without holding up the loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from core.jsontext import loads

INLINE_BYTES = 64 * 1024
"""Bodies up to this are parsed in the loop: a hop to a thread costs more than they do."""
BODY_SECONDS = 60.0
"""For a whole body to arrive."""

Parsed = TypeVar("Parsed")


async def read_body(request: Request, parse: Callable[[object], Parsed]) -> Parsed:
    """What `parse` makes of the body's JSON value, in a thread when the body is large.

    Raises whatever `parse` raises, InvalidRequest naming `body` for what is no JSON, and 408 for a body that does not come.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.body()
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection closed before the body was complete") from None
    if len(body) <= INLINE_BYTES:
        return parse(loads(body))
    return await to_thread.run_sync(lambda: parse(loads(body)))
