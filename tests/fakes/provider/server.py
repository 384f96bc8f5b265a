"""The fake provider's HTTP server: one thread, any number of connections, one log row for every request that reached it.

`with provider() as fake:` in this process; `python -m tests.fakes.provider` as a process of its own.
"""

import asyncio
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.fakes.provider import prices, replies
from tests.fakes.provider.steps import Asked, Script, Step

BODY_MOST = 32 * 1024 * 1024
PIECES = 10
NO_LINGER = struct.pack("ii", 1, 0)
"""A socket closed with this sends a reset."""


@dataclass
class Row:
    """One request. `at` and `ended` are CLOCK_MONOTONIC, the same for all processes of a machine.

    `outcome`: `open` (still at work), `sent` (a metered reply was handed to the kernel whole: `sent` is true), `unmetered` (a
    whole 200 without usage), `refused` (a whole reply of another status), `cut`, `reset`, `gone` (the client left first).
    Tokens and cost are what the provider would bill for a metered reply, also when that never arrived; 0 for a refusal.
    """

    number: int
    path: str
    at: float
    client_id: str = ""
    """The client's own id for the request: the header X-Client-Request-Id."""
    model: str = ""
    body_sha256: str = ""
    status: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    outcome: str = "open"
    sent: bool = False
    ended: float = 0.0
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def line(self) -> str:
        """For the file: without body and headers, so without credentials."""
        hidden = {"body", "headers"}
        return json.dumps({name: value for name, value in asdict(self).items() if name not in hidden})


class Provider:
    """`url` is where it listens. Everything may be called from any thread."""

    def __init__(
        self, log: Path | None = None, keys: Iterable[str] = (), charge: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        """`keys`: those it accepts; none given: any. `charge`: prices by model, before the fake's own table."""
        self.log: list[Row] = []
        self.scripted = Script()
        self.most_at_once = 0
        """The most requests it ever had at work together."""
        self._charge = charge or {}
        self._keys = frozenset(f"Bearer {key}" for key in keys)
        self._file: IO[str] | None = log.open("a", encoding="utf-8", buffering=1) if log else None
        self._at_once = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-provider")
        self._server: asyncio.Server | None = None
        self._deaf: list[socket.socket] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen())

    def stop(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
        if self._file:
            self._file.close()

    # -- what it does ---------------------------------------------------------------------------------------------------

    def script(self, steps: Iterable[Step], match: str = "") -> None:
        """One step a request, in order; `match`: only for requests whose path or body has this text."""
        self.scripted.add(steps, match)

    def always(self, step: Step) -> None:
        """For every request that has no step of its own."""
        self.scripted.default = step

    def refuse(self) -> None:
        """As if nobody listened: open connections are reset, new ones refused; until `listen`."""
        self._run(self._close())

    def ignore(self) -> None:
        """As a host that answers no connection: they time out; until `listen`."""
        self._run(self._close())
        self._run(self._block())

    def listen(self) -> None:
        """The end of `refuse` and `ignore`, at the same address."""
        self._run(self._close())
        self._run(self._listen())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    # -- listening ------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self._port, backlog=512)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _block(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        listener.listen(0)
        self._deaf = [listener]
        for _ in range(4):  # fills the kernel's queue: nobody accepts
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", self._port))
            self._deaf.append(waiting)

    async def _close(self) -> None:
        for silent in self._deaf:
            silent.close()
        self._deaf = []
        if self._server is not None:
            # What was accepted a moment ago first gets its transport, which a closed server refuses it.
            for listener in self._server.sockets:
                self._loop.remove_reader(listener.fileno())
            for _ in range(5):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None
        for writer in list(self._connections):
            _reset(writer)

    async def _end(self) -> None:
        await self._close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._close()  # whatever a connection waits for, its reset ends it
            await asyncio.wait(tasks, timeout=0.05)

    # -- one connection -------------------------------------------------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        row = Row(len(self.log), path, time.monotonic(), headers.get("x-client-request-id", ""), headers=headers)
        self.log.append(row)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            early = self.scripted.early()
            if early is None:
                row.body = await reader.readexactly(min(int(headers.get("content-length", 0)), BODY_MOST))
                row.body_sha256 = hashlib.sha256(row.body).hexdigest()
            step = early or self.scripted.next(Asked(path, row.body))
            return await self._answer(_Exchange(method, row, step, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            row.outcome, row.sent = "gone", False
            raise
        finally:
            self._at_once -= 1
            row.ended = time.monotonic()
            if self._file:
                self._file.write(row.line() + "\n")

    async def _answer(self, exchange: "_Exchange") -> bool:
        row, step, writer = exchange.row, exchange.step, exchange.writer
        status, metered, body = self._reply(exchange)
        row.status = status
        if await exchange.gone_within(step.delay):
            return False
        if step.reset:
            row.outcome, row.status = "reset", 0
            _reset(writer)
            return False
        more = "".join(f"{name}: {value}\r\n" for name, value in step.headers.items())
        named = f"x-typesafe-request-id: fake-{row.number}\r\nx-request-id: fake-{row.number}\r\n"
        shape = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = f"HTTP/1.1 {status} {step.reason}\r\n{shape}{named}{more}\r\n"
        if step.cut:
            row.outcome = "cut"
            writer.write(head.encode("latin-1") + body[: len(body) // 2])
            await writer.drain()
            return False
        return await exchange.send(head.encode("latin-1"), body, metered)

    def _reply(self, exchange: "_Exchange") -> tuple[int, bool, bytes]:
        """Status, whether it carries usage, and the body; what it costs goes into the row."""
        row, step, path = exchange.row, exchange.step, exchange.row.path
        status = step.status
        text = f"scripted {status}"
        if self._keys and row.headers.get("authorization", "") not in self._keys:
            status, text = 401, "no such key"
        elif not replies.known(exchange.method, path):
            status, text = 404, "no such route"
        if step.echo:
            text += f" for {row.headers.get('authorization', '')}"
        try:
            asked: Any = json.loads(row.body) if row.body else {}
            row.model = str(asked.get("model", ""))
            tokens = replies.used(path, asked, row.body, step)
            reply = replies.ordinary(path, asked, step, tokens) if status == 200 and not step.reset else {}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            status, text, tokens, reply = 422, f"the request is wrong: {error!r}", (0, 0), {}
        if status != 200:
            body = step.body if step.body is not None else json.dumps(replies.refusal(path, status, text))
            return status, False, body.encode()
        row.input_tokens, row.output_tokens = tokens
        row.cost_nanos = prices.cost(row.model, tokens, self._charge)
        if step.body is not None:
            return status, False, step.body.encode()
        patched = replies.merge(reply, step.patch) if step.patch else reply
        metered = bool(patched.get("usage")) or (path == "/api/embed" and "prompt_eval_count" in patched)
        return status, metered, json.dumps(patched).encode()


@dataclass
class _Exchange:
    method: str
    row: Row
    step: Step
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, head: bytes, body: bytes, metered: bool) -> bool:
        """Whether all was handed over before the client left."""
        if not self.step.stall and not self.step.drip:
            await self._finish(head + body, metered)
            return True
        self.writer.write(head)
        if await self.gone_within(self.step.stall):
            return False
        size = max(1, -(-len(body) // PIECES)) if self.step.drip else len(body)
        for start in range(0, len(body), size):
            if self.step.drip and await self.gone_within(self.step.drip):
                return False
            if start + size >= len(body):
                await self._finish(body[start:], metered)
            else:
                self.writer.write(body[start : start + size])
                await self.writer.drain()
        return True

    async def _finish(self, data: bytes, metered: bool) -> None:
        # The row first: the client may look at it as soon as it has the last byte.
        row = self.row
        row.sent = metered and row.status == 200
        row.outcome = "sent" if row.sent else "unmetered" if row.status == 200 else "refused"
        self.writer.write(data)
        await self.writer.drain()

    async def gone_within(self, seconds: float) -> bool:
        """Waits; at once True when the client ends the connection meanwhile (no client sends before it has its reply)."""
        if not seconds:
            return False
        try:
            await asyncio.wait_for(self.reader.read(1), seconds)
        except TimeoutError:
            return False
        self.row.outcome = "gone"
        return True


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


@contextmanager
def provider(
    log: Path | None = None, keys: Iterable[str] = (), charge: Mapping[str, tuple[int, int]] | None = None
) -> Iterator[Provider]:
    """A started provider, stopped afterwards. `log`: also written there, one JSON line a request when it has ended."""
    fake = Provider(log, keys, charge)
    fake.start()
    try:
        yield fake
    finally:
        fake.stop()
