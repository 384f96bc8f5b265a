"""How large a request body may be, by route: refused before it is read, or as soon as it grows too large."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response
from core.errors import TooLarge
from core.records.limits import BODY_BYTES, MIB

DEFAULT_BYTES = MIB


@dataclass(frozen=True)
class BodyLimit:
    """`path` is matched against the whole path, `method` must be equal."""

    method: str
    path: re.Pattern[str]
    limit: int


BODY_LIMITS: tuple[BodyLimit, ...] = (
    # JSON may spell a character of one byte with six, so the text's own limit is checked after parsing.
    BodyLimit("POST", re.compile(r"/v1/stores/[^/]+/(memories|conversations|memories:batch|reads)"), BODY_BYTES),
    # A part of an upload; core/archives refuses what goes beyond the announced size.
    BodyLimit("PATCH", re.compile(r"/v1/imports/[^/]+"), BODY_BYTES),
)


class BodyLimits:
    """Pure ASGI. A body with a Content-Length is refused unread (413); a chunked one when it passes the limit."""

    def __init__(self, app: ASGIApp, limits: Sequence[BodyLimit] = BODY_LIMITS, default: int = DEFAULT_BYTES) -> None:
        self.app = app
        self.limits = limits
        self.default = default

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = chunked = None
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = value
        if length is not None and chunked is None and length.isdigit():
            # The server never hands on more than was announced: nothing to count.
            if int(length) <= self.default or int(length) <= (limit := self._limit(scope)):
                await self.app(scope, receive, send)
            else:
                await problem_response(_too_large(limit))(scope, receive, send)
            return
        if chunked is None and length is None and scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        await self.app(scope, self._counted(receive, self._limit(scope)), send)

    def _limit(self, scope: Scope) -> int:
        for entry in self.limits:
            if entry.method == scope["method"] and entry.path.fullmatch(scope["path"]):
                return entry.limit
        return self.default

    @staticmethod
    def _counted(receive: Receive, limit: int) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                # FastAPI hands on this class alone out of its own reading of a body.
                raise HTTPException(413, _too_large(limit).detail)
            return message

        return counted


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is over {limit} bytes, this route's limit; split it")
