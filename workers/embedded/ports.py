"""Loopback ports."""

import socket
from collections.abc import Callable
from typing import TypeVar

from workers.embedded.errors import CannotStart

LOOPBACK = "127.0.0.1"
ATTEMPTS = 3

Started = TypeVar("Started")


def free_port() -> int:
    """A port that was free a moment ago; another process may still take it first."""
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as listener:
        # As the servers do: connections of an earlier server that are still closing do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def start_on_free_port(start: Callable[[int], Started]) -> Started:
    """`start(port)` with a free port; with another one when somebody took it first. Other CannotStart go through."""
    for _ in range(ATTEMPTS - 1):
        port = free_port()
        try:
            return start(port)
        except CannotStart:
            if is_free(port):
                raise
    return start(free_port())
