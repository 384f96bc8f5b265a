"""The sockets under the HTTP client, so that no request outlasts its time.

The client's own time-outs are for one read or write each: an endpoint that sends a byte now and then is never late by them.
Here each of them gets what is left of the request's whole time.
"""

import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

WRITE_BYTES = 16 * 1024
"""Of one write: little enough to go in one piece, so that the time is looked at between."""


class Limit(threading.local):
    """Until when the request of this thread may run, on the transport's clock."""

    until = float("inf")


class LimitedTransport(httpx.HTTPTransport):
    """Reads nothing from the environment; otherwise as its base."""

    def __init__(self, limits: httpx.Limits, limit: Limit, monotonic: Callable[[], float]) -> None:
        context = httpx.create_ssl_context(trust_env=False)
        super().__init__(verify=context, trust_env=False, limits=limits)
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(lambda: limit.until - monotonic()),
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self, left: Callable[[], float]) -> None:
        self._inner = httpcore.SyncBackend()
        self._left = left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = _clipped(self._left(), timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, seconds, local_address, socket_options), self._left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, left: Callable[[], float]) -> None:
        self._inner = inner
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _clipped(self._left(), timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), WRITE_BYTES):
            seconds = _clipped(self._left(), timeout, httpcore.WriteTimeout)
            self._inner.write(buffer[at : at + WRITE_BYTES], seconds)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        seconds = _clipped(self._left(), timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, seconds), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _clipped(left: float, timeout: float | None, error: type[Exception]) -> float:
    if left <= 0:
        raise error("the request's time is over")
    return left if timeout is None else min(left, timeout)
