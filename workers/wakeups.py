"""What the thread of a consumer waits for: wake-ups published in Redis, and rings of other threads of its process.

The thread that fetches waits on the subscription's own socket, so no other thread stands between a published wake-up and
its fetch. redis-py's PubSub is not used: it would read, parse and count what says no more than "look" (eight system calls a
wake-up instead of two), and it renews a lost connection behind the back of whoever polls its socket.

Private part of redis-py 8.1 relied on: a connection's `_sock`.
"""

import logging
import select
import socket
import ssl
from contextlib import suppress
from threading import Lock
from typing import Any

import redis

from core import clock

_log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""No wait is longer: so often the subscription is looked after."""
SUBSCRIBE_SECONDS = 1.0
"""The time between two tries to subscribe."""
PING_SECONDS = 15.0
"""A server that said nothing for so long is asked whether it is there,"""
ANSWER_SECONDS = 5.0
"""and counts as lost after so long without an answer: half open, nobody is there and no packet will ever say so."""


class Doorbell:
    """Any thread rings, one waits on `fileno`. A ring before the wait is kept; one after `close` does nothing."""

    def __init__(self) -> None:
        self._inside, self._outside = socket.socketpair()
        self._inside.setblocking(False)
        self._outside.setblocking(False)
        self._lock = Lock()  # a number that was just closed may be another file's

    def fileno(self) -> int:
        return self._inside.fileno()

    def ring(self) -> None:
        with self._lock, suppress(OSError):  # closed, or full of rings
            self._outside.send(b"\0")

    def answer(self) -> None:
        with suppress(BlockingIOError):
            self._inside.recv(4_096)

    def close(self) -> None:
        with self._lock:
            self._inside.close()
            self._outside.close()


class Subscription:
    """A connection of its own that hears one channel. Every method raises redis.RedisError when it is lost."""

    def __init__(self, client: Any, channel: str) -> None:
        pool = client.connection_pool
        self._connection = pool.connection_class(**pool.connection_kwargs)  # not an idle one: it may be half open
        try:
            self._connection.send_command("SUBSCRIBE", channel, check_health=False)
            self._connection.read_response()
            self._socket: socket.socket = self._connection._sock
            self._socket.setblocking(False)
        except BaseException:
            self.close()
            raise
        self.number = self._socket.fileno()
        self._heard_at = clock.monotonic()
        self._asked_at: float | None = None

    def take(self) -> None:
        """Takes what has arrived, unread: a message, many of them or an answer to a ping."""
        try:
            if not self._socket.recv(65_536):
                raise redis.ConnectionError("the server closed the connection")
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            raise redis.ConnectionError(str(error)) from error
        self._heard_at = clock.monotonic()
        self._asked_at = None

    def check(self) -> None:
        """To be called now and then while nothing arrives."""
        now = clock.monotonic()
        if self._asked_at is not None:
            if now - self._asked_at > ANSWER_SECONDS:
                raise redis.ConnectionError("the server no longer answers")
        elif now - self._heard_at > PING_SECONDS:
            self._connection.send_command("PING", check_health=False)
            self._asked_at = now

    def close(self) -> None:
        self._connection.disconnect()


class WakeUps:
    """One thread waits; `ring` is for any. To be read from anywhere: `problem`, why what is published is not heard, or ""."""

    def __init__(self, client: Any, queue: str, channel: str) -> None:
        self.problem = "not yet subscribed"
        self._client = client
        self._queue = queue
        self._channel = channel
        self._told = False
        self._closed = False
        self._subscription: Subscription | None = None
        self._subscribe_at = 0.0
        self._bell = Doorbell()
        self._poller = select.poll()
        self._poller.register(self._bell, select.POLLIN)

    def ring(self) -> None:
        self._bell.ring()

    def wait(self, seconds: float) -> bool:
        """Until there is a reason to fetch; at most `seconds`, and CHECK_SECONDS. Sees to the subscription as well.

        A subscription that was lost or made is a reason: something may have been published meanwhile."""
        seconds = min(seconds, CHECK_SECONDS)
        if self._closed:
            return False
        if self._subscription is None:
            left = self._subscribe_at - clock.monotonic()
            if left <= 0:
                return self._subscribe()
            seconds = min(seconds, left)
        ready = [number for number, _ in self._poller.poll(seconds * 1_000)]
        if self._bell.fileno() in ready:
            self._bell.answer()
        if self._subscription is not None:
            try:
                if self._subscription.number in ready:
                    self._subscription.take()
                else:
                    self._subscription.check()
            except redis.RedisError as error:
                self._drop()
                self._lost(error)
                return True
        return bool(ready)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._drop()
        self._poller.unregister(self._bell)
        self._bell.close()

    def _subscribe(self) -> bool:
        self._subscribe_at = clock.monotonic() + SUBSCRIBE_SECONDS
        try:
            self._subscription = Subscription(self._client, self._channel)
        except redis.RedisError as error:
            self._lost(error)
            return False
        self._poller.register(self._subscription.number, select.POLLIN)
        if self._told:
            _log.warning("%s: wake-ups are heard again", self._queue)
        self._told = False
        self.problem = ""
        return True

    def _drop(self) -> None:
        if self._subscription is not None:
            self._poller.unregister(self._subscription.number)
            self._subscription.close()
            self._subscription = None

    def _lost(self, error: redis.RedisError) -> None:
        self.problem = f"{type(error).__name__}: {error}"
        if not self._told:  # once an outage
            _log.warning("%s: wake-ups are not heard, only polled for: %s", self._queue, self.problem)
        self._told = True
