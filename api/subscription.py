"""One Redis channel, heard by the event loop itself.

redis.asyncio's pub/sub costs three times as much of the loop's time for a message. Here redis-py connects, in a thread (TLS,
passwords, and whatever else a URL may ask for); from then on the loop watches the socket, and hiredis reads what came.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.clock import monotonic

READ_BYTES = 65_536
READS = 16
"""At most so many in a row: others use the loop too."""


class Subscription:
    """`heard(kind, data)` is called for each message, and when the channel is subscribed; `lost` says what ended it."""

    def __init__(self, connection: Any, heard: Callable[[bytes, Any], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._socket: Any = connection._sock
        self._socket.setblocking(False)
        self._reader = hiredis.Reader()
        self._heard = heard
        self.lost: asyncio.Future[Exception] = self._loop.create_future()
        self.heard_at = monotonic()
        self._loop.add_reader(self._socket, self._readable)

    @classmethod
    async def open(cls, url: str, channel: str, seconds: float, heard: Callable[[bytes, Any], None]) -> "Subscription":
        """Connects within about `seconds`. Raises redis.RedisError."""
        # Not in one of the routes' threads: those may all be waiting for Postgres.
        return cls(await asyncio.to_thread(_connect, url, channel, seconds), heard)

    def ping(self) -> None:
        """Raises OSError when it cannot be sent at once."""
        self._socket.send(b"".join(self._connection.pack_command("PING")))

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self.lost.cancel()
        self._connection.disconnect()

    def _readable(self) -> None:
        if self.lost.done():
            return
        try:
            for _ in range(READS):
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise redis.ConnectionError("the server closed the connection")
                self._reader.feed(data)
                while (reply := self._reader.gets()) is not False:
                    self._take(reply)
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except Exception as error:  # whatever it is, this connection is of no more use
            self._loop.remove_reader(self._socket)
            self.lost.set_result(error)
        else:
            # There may be more, and what TLS has unpacked already makes no socket readable.
            self._loop.call_soon(self._readable)

    def _take(self, reply: Any) -> None:
        self.heard_at = monotonic()
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, list):
            parts = cast("list[Any]", reply)
            if len(parts) == 3:  # else it answers a ping
                self._heard(parts[0], parts[2])


def _connect(url: str, channel: str, seconds: float) -> Any:
    untyped: Any = redis.ConnectionPool
    pool = untyped.from_url(url, socket_connect_timeout=seconds, socket_timeout=seconds, retry=Retry(NoBackoff(), 0))
    connection = pool.make_connection()
    connection.connect()
    connection.send_command("SUBSCRIBE", channel, check_health=False)
    return connection
