"""No endpoint can hold an attempt past its time, however it spreads what it sends: one byte now and then is never silence."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from core.clock import monotonic
from core.models.transport import Lost, Raw, TimedOut, Transport

OK = b"HTTP/1.1 200 OK\r\n"
Piece = tuple[float, bytes]
"""Seconds of silence, and what is sent then."""
SLOW: dict[str, Sequence[Piece]] = {
    "head": [(0, OK + b"X-A: "), *[(0.6, b"a")] * 10],
    "interim-answers": [(0.6, b"HTTP/1.1 102 Processing\r\n\r\n")] * 10,
    "body": [(0, OK + b"Content-Length: 99\r\n\r\n"), *[(0.6, b"{")] * 10],
    "one-gap-in-the-body": [(0, OK + b"Content-Length: 99\r\n\r\n"), (0.7, b"{"), (6, b"}")],
    "chunk-sizes": [(0, OK + b"Transfer-Encoding: chunked\r\n\r\n"), *[(0.6, b"0")] * 10],
}


@contextmanager
def endpoint(pieces: Sequence[Piece]) -> Iterator[str]:
    """Answers one request with the pieces."""
    stopped = threading.Event()

    def answer(listening: socket.socket) -> None:
        with listening, listening.accept()[0] as connection:
            try:
                connection.recv(65_536)
                for seconds, data in pieces:
                    if stopped.wait(seconds):
                        return
                    connection.sendall(data)
                stopped.wait(20)
            except OSError:
                return  # the other side has gone

    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=answer, args=(listening,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/x"
    finally:
        stopped.set()
        thread.join(10)


def timed(ask: Callable[[], Raw]) -> tuple[float, Raw | Lost]:
    began = monotonic()
    try:
        found: Raw | Lost = ask()
    except Lost as error:
        found = error
    return monotonic() - began, found


@pytest.mark.parametrize("pieces", SLOW.values(), ids=SLOW)
def test_an_attempt_ends_at_its_time(pieces: Sequence[Piece]) -> None:
    transport = Transport(monotonic)
    with endpoint(pieces) as url:
        seconds, ended = timed(lambda: transport.post(url, b"{}", "", 1.0, "id"))
    transport.close()
    assert isinstance(ended, TimedOut)
    assert 1 <= seconds < 2


def test_a_refusal_that_drips_is_known_by_its_status_at_its_time() -> None:
    transport = Transport(monotonic)
    with endpoint([(0, b"HTTP/1.1 401 No\r\nContent-Length: 99\r\n\r\n"), *[(0.6, b"x")] * 10]) as url:
        seconds, ended = timed(lambda: transport.post(url, b"{}", "", 1.0, "id"))
    transport.close()
    assert isinstance(ended, Raw)
    assert ended.status == 401
    assert seconds < 2


def test_the_next_request_of_a_thread_has_its_own_time() -> None:
    transport = Transport(monotonic)
    with endpoint(SLOW["head"]) as url, pytest.raises(TimedOut):
        transport.post(url, b"{}", "", 0.2, "id")
    with endpoint([(0.5, OK + b"Content-Length: 2\r\n\r\n{}")]) as url:
        assert transport.post(url, b"{}", "", 5.0, "id").body == b"{}"
    transport.close()
