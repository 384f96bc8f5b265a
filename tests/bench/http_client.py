"""A light HTTP/1.1 client for measuring: keep-alive, one thread, one epoll loop, no parsing beyond what is needed.

It shares the two cores with what it measures, so it must cost little: about 30 µs a request.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

TIMEOUT_SECONDS = 60.0


def request(
    method: str, path: str, *, headers: Mapping[str, str] | None = None, body: bytes = b"", host: str = "127.0.0.1"
) -> bytes:
    """The bytes of one request, to be sent as they are."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    if body:
        lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass(slots=True)
class Load:
    """What a run gave: latencies in ms (in order of completion), answers by status, the whole duration in seconds."""

    latencies_ms: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds


class Reply:
    """Collects one response; `feed` returns True when it is complete."""

    __slots__ = ("_buffer", "_end", "status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._end = -1
        self.status = 0

    def feed(self, data: bytes) -> bool:
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data
        if self._end < 0:
            head = self._buffer.find(b"\r\n\r\n")
            if head < 0:
                return False
            self.status = int(self._buffer[9:12])
            self._end = head + 4 + _content_length(bytes(self._buffer[:head]), self.status)
        return len(self._buffer) >= self._end

    @property
    def body(self) -> bytes:
        return bytes(self._buffer[self._buffer.find(b"\r\n\r\n") + 4 : self._end])


def _content_length(head: bytes, status: int) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at >= 0:
        return int(lower[at + 17 :].split(b"\r\n", 1)[0])
    if status in (204, 304):
        return 0
    raise ValueError("this client needs a Content-Length")


class Connection:
    """One blocking keep-alive connection, for requests one after the other."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = _connect(host, port)

    def ask(self, message: bytes) -> tuple[int, bytes, float]:
        """Status, body, latency in ms."""
        start = time.perf_counter()
        self._socket.sendall(message)
        reply = Reply()
        while not reply.feed(self._socket.recv(65_536)):
            pass
        return reply.status, reply.body, (time.perf_counter() - start) * 1_000

    def close(self) -> None:
        self._socket.close()


def sequential(port: int, make: Callable[[int], bytes], *, requests: int, pause: float = 0.0) -> Load:
    """One connection, one request at a time, `pause` seconds of idleness before each."""
    load, connection = Load(), Connection(port)
    start = time.perf_counter()
    try:
        for number in range(requests):
            if pause:
                time.sleep(pause)
            status, _, latency = connection.ask(make(number))
            load.statuses[status] += 1
            load.latencies_ms.append(latency)
    finally:
        connection.close()
    load.seconds = time.perf_counter() - start
    return load


def concurrent(port: int, make: Callable[[int], bytes], *, clients: int, requests: int) -> Load:
    """`clients` keep-alive connections, each sending its next request as soon as it has its answer."""
    load, sent = Load(), 0
    with selectors.DefaultSelector() as selector:
        sockets = [_connect("127.0.0.1", port) for _ in range(min(clients, requests))]
        start = time.perf_counter()
        try:
            for connection in sockets:
                selector.register(connection, selectors.EVENT_READ, (_send(connection, make(sent)), Reply()))
                sent += 1
            while len(load.latencies_ms) < requests:
                ready = selector.select(TIMEOUT_SECONDS)
                if not ready:
                    raise TimeoutError(f"no answer for {TIMEOUT_SECONDS:.0f} s")
                for key, _ in ready:
                    connection: socket.socket = key.fileobj  # pyright: ignore[reportAssignmentType]
                    began, reply = key.data
                    if not reply.feed(connection.recv(65_536)):
                        continue
                    load.latencies_ms.append((time.perf_counter() - began) * 1_000)
                    load.statuses[reply.status] += 1
                    if sent < requests:
                        selector.modify(connection, selectors.EVENT_READ, (_send(connection, make(sent)), Reply()))
                        sent += 1
                    else:
                        selector.unregister(connection)
        finally:
            for connection in sockets:
                connection.close()
        load.seconds = time.perf_counter() - start
    return load


def _connect(host: str, port: int) -> socket.socket:
    found = socket.create_connection((host, port), timeout=TIMEOUT_SECONDS)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _send(connection: socket.socket, message: bytes) -> float:
    began = time.perf_counter()
    connection.sendall(message)
    return began
