"""HTTP/1.1 on a connection: httptools parses, and what its parser leaves open is refused here.

That is: how long a head may be, and whatever else no body is made of; a Host that is missing or given twice; codings of a
body other than chunks; versions other than 1.0 and 1.1; heads that do not come to their end. What is refused is answered
with a problem, or with nothing when another answer is under way, and the connection closes. An offer to go on with another
protocol is declined by serving the request as if it had not been made (RFC 9110 §7.8).
"""

import asyncio
import json
from http import HTTPStatus
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.problems import MEDIA_TYPE

HEAD_BYTES = 64 * 1024
"""Of the request line with all headers; and of what stands between two pieces of a body, or behind the last (trailers)."""
VERSIONS = ("1.1", "1.0")
HEAD_SECONDS = 30.0
"""For a head to arrive: from the connection's beginning, or from the first byte behind the answer before. What is left of a
body that was answered before its end must come in that time, too."""
PIPELINED = 256
"""The most requests that may come ahead of their answers: a read of the socket may hold thousands of small ones."""


class HttpProtocol(HttpToolsProtocol):
    """One connection. Requests that come before the answer to the one before are kept in order (pipelining)."""

    parser: httptools.HttpRequestParser
    _answering: RequestResponseCycle | None = None
    _in_head = True
    """Between the end of one message and the end of the next one's headers."""
    _moved = False
    """Whether the parser has come to the end of a head, a piece of a body or a message in what it was just given."""
    _held = 0
    """Bytes that came since then: the parser keeps them, or nobody wants them."""
    _fault = HTTPStatus.BAD_REQUEST
    _deaf = False
    """Whatever comes now is not read: the connection ends with what is being answered."""
    _begun = False
    """A part of a head has come."""
    _offered = False
    """The head that was just read offers another protocol: nothing was done about it yet."""
    _since: float | None = None
    """When the wait for the present head began, by the loop's clock; None while none is waited for."""
    _timer: asyncio.TimerHandle | None = None
    """At most one a connection: it looks at `_since` when it fires, so that requests need not set or cancel it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._moved = False
        self._feed(data)
        if self._deaf:
            return
        if not self._moved:
            self._held += len(data)
            if self._held > HEAD_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if self._since is None and (self._answering is None or self._answering.response_complete):
            self._await_head()  # nothing is under way that ends the connection by itself

    def _feed(self, data: bytes) -> None:
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = self._declined() + data[offer.args[0] :]  # the offset is where the head ends
                continue
            except httptools.HttpParserError:
                self._refuse(self._fault)
            return

    def _declined(self) -> bytes:
        """The head that was just read without its offer of another protocol, for a new parser: the old one takes a body for
        a part of that protocol."""
        self._offered = False
        start = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        lines = [b"%b: %b\r\n" % (name, value) for name, value in self.headers if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"".join([start, *lines, b"\r\n"])

    def connection_lost(self, exc: Exception | None) -> None:
        # uvicorn tells the newest request alone, which may not be the one that is being answered.
        now = self._answering
        if now is not None and not now.response_complete:
            now.disconnected = True
            now.message_event.set()
        self.pipeline.clear()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _move(self) -> None:
        self._moved = True
        self._held = 0

    # The wait for a head ----------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        self._since = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._since is None or self._deaf or self.transport.is_closing():
            return
        if self._answering is not None and not self._answering.response_complete:
            self._since = self.loop.time()  # while an answer is under way, we may not be reading
        left = self._since + HEAD_SECONDS - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._look)
        elif self._begun:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    # Parser callbacks -------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers would join the headers that the app has long read
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        self._check_head()
        if self.parser.should_upgrade():
            self._offered = True
            return
        super().on_headers_complete()
        self._in_head = self._begun = False
        self._since = None
        self._move()

    def on_body(self, body: bytes) -> None:
        self._move()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offered:
            return
        super().on_message_complete()
        self._in_head = True
        self._move()

    def _check_head(self) -> None:
        """Raises HttpParserError; `_fault` is the status it is answered with."""
        size, hosts, version = len(self.url), 0, self.parser.get_http_version()
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding" and value.lower() != b"chunked":
                raise httptools.HttpParserError("a coding of the body that nobody here reads")
        if size > HEAD_BYTES:
            self._fault = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise httptools.HttpParserError("too long a head")
        # RFC 9112 §3.2. CONNECT would end HTTP on this connection.
        if hosts > 1 or (not hosts and version == "1.1") or self.parser.get_method() == b"CONNECT":
            raise httptools.HttpParserError("no target for this server")
        if version not in VERSIONS:
            raise httptools.HttpParserError("another version of HTTP")
        if len(self.pipeline) >= PIPELINED:
            raise httptools.HttpParserError("too many requests ahead of their answers")

    # Answers ----------------------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if cycle.scope["http_version"] == "1.0":
            cycle.waiting_for_100_continue = False
            app = _without_chunks(cycle, app)
        super()._start_asgi_task(cycle, app)

    def _refuse(self, status: HTTPStatus) -> None:
        self._deaf = True
        bad = None if self._in_head else self.cycle
        now = self._answering
        if now is not None and now is not bad and not now.response_complete:
            # An answer to what came before is under way: a status in its midst would be taken for a part of it.
            now.keep_alive = False
            self.pipeline.clear()
            return
        if bad is not None:
            answered = bad.response_started
            bad.disconnected = True
            bad.message_event.set()
            if answered:
                self.transport.close()
                return
        self.logger.warning("a request is refused: %d %s", status, status.phrase)
        detail = "this is no HTTP/1.1 request that this server reads"
        if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            detail = f"the request line and headers are over {HEAD_BYTES} bytes; send less"
        elif status == HTTPStatus.REQUEST_TIMEOUT:
            detail = f"the request line and headers did not arrive within {HEAD_SECONDS:g} s; send them at once"
        problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}
        body = json.dumps(problem).encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()


def _without_chunks(cycle: RequestResponseCycle, app: ASGIApp) -> ASGIApp:
    """For HTTP/1.0, which knows no chunks: a body of unknown length ends with its connection."""

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        unsized = False

        async def sent(message: Message) -> None:
            nonlocal unsized
            if message["type"] == "http.response.start":
                unsized = all(name.lower() != b"content-length" for name, _ in message["headers"])
                if unsized:
                    cycle.chunked_encoding = False
            elif unsized:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, sent)

    return plain
