"""Takes wake-ups from one queue without idle polling, and survives a Redis that goes away.

Unlike Dramatiq's consumer this one never ends on a lost connection (nor on a socket time-out, dramatiq issue 894): it
keeps what it holds and tries again, so no message is stranded in a forgotten consumer. Worker threads do no network
work to acknowledge: the consumer thread sends acknowledgements together with its next fetch.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import redis
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import DecodeError
from dramatiq.message import Message

from core import clock
from workers.wakeups import WakeUps

if TYPE_CHECKING:
    from workers.broker import WakeBroker

_log = logging.getLogger(__name__)

ACK_SECONDS = 0.2
RECONCILE_SECONDS = 10.0
SWEEP_SECONDS = 10
BACKOFF_SECONDS = (0.05, 1.0)


class WakeConsumer(Consumer):
    """Iterated by one Dramatiq consumer thread; `ack`, `nack` may come from any worker thread.

    At most `prefetch` messages are held at once, in memory or at work. To be read from anywhere: `rejected`, messages
    that could not be read and were set aside; `connected`, whether the last call to Redis was good; `problem`, why not;
    `deaf`, why published wake-ups are not heard, or "".
    """

    def __init__(self, broker: "WakeBroker", queue: str, prefetch: int) -> None:
        self.rejected = 0
        self.connected = False
        self.problem = "not tried yet"
        self._failures = 0
        self._broker = broker
        self._queue = queue
        self._prefetch = prefetch
        self._wakes = WakeUps(broker.client, queue, broker.channel(queue))
        self._ready: deque[MessageProxy] = deque()  # fetched, not yet handed to the worker threads
        self._held: set[str] = set()  # ids fetched and not done, ready ones included
        self._done: deque[str] = deque()  # ids to acknowledge
        self._more = True  # Redis may have more than was taken
        self._exchanged_at = 0.0
        self._reconcile_at = 0.0
        self._sweep_at = clock.monotonic() + SWEEP_SECONDS

    @property
    def deaf(self) -> str:
        return self._wakes.problem

    def ring(self) -> None:
        """Something has changed for the consumer; for any thread."""
        self._wakes.ring()

    # -- Dramatiq's interface -----------------------------------------------------------------------------------------

    def __next__(self) -> MessageProxy | None:
        if self._broker.draining:
            self._give_back(self._ready)
        if not self._ready:
            self._wait()
            self._exchange()
        return self._ready.popleft() if self._ready and not self._broker.draining else None

    def ack(self, message: MessageProxy) -> None:
        """Never raises and waits for nothing; order matters: `_reconcile` must find the id in `_held` or in `_done`."""
        message_id: str = message.options["redis_message_id"]
        self._done.append(message_id)
        self._held.discard(message_id)
        if self._more:
            self._wakes.ring()

    def nack(self, message: MessageProxy) -> None:
        """As `ack`: a job that failed is Postgres's business, its wake-up is spent."""
        self.ack(message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Give prefetched messages back, for another process to take."""
        self._give_back(deque(messages))

    def close(self) -> None:
        """Acknowledge and give back what is left; without Redis both wait for the sweep."""
        self._give_back(self._ready)
        done = list(self._done)
        try:
            self._broker.exchange(self._queue, done, 0)
        except redis.RedisError as error:
            _log.warning("%s: %d acknowledgements not sent: %s", self._queue, len(done), error)
        self._wakes.close()

    # -- the consumer thread ------------------------------------------------------------------------------------------

    def _free(self) -> int:
        return 0 if self._broker.draining else self._prefetch - len(self._held)

    def _wait(self) -> None:
        """Until a message may be there and there is room for it, or acknowledgements are due, or the slow poll is."""
        poll_at = self._exchanged_at + self._broker.poll_seconds
        while not (self._more and self._free() > 0):
            self._keep_house()
            left = poll_at - clock.monotonic()
            if left <= 0:
                return
            busy = self._held or self._done or self._broker.draining
            if self._wakes.wait(min(ACK_SECONDS, left) if busy else left):
                self._more = True
            elif self._done or self._broker.draining:
                return

    def _exchange(self) -> None:
        self._wakes.wait(0)  # what was published until now, this fetch sees; and a subscription comes before it
        asked = self._free()
        done = [self._done.popleft() for _ in range(len(self._done))]
        self._exchanged_at = clock.monotonic()
        try:
            bodies = self._broker.exchange(self._queue, done, asked)
            if asked:
                self._more = len(bodies) == asked
            if not self._take(bodies):
                self._reconcile()
        except redis.RedisError as error:
            self._done.extendleft(reversed(done))
            self._lost(error)
        else:
            if self._failures:
                _log.warning("%s: consuming again after %d failed calls", self._queue, self._failures)
            self._failures = 0
            self.connected = True

    def _lost(self, error: redis.RedisError) -> None:
        self._failures += 1
        self.connected = False
        self.problem = f"{type(error).__name__}: {error}"
        self._more = True
        self._reconcile_at = 0.0  # the reply that was lost may have carried messages
        if self._failures == 1:
            _log.warning("%s: Redis is away, trying again: %s", self._queue, self.problem)
        first, last = BACKOFF_SECONDS
        self._wakes.wait(min(first * 2 ** min(self._failures, 10), last))

    def _keep_house(self) -> None:
        """What is done now and then, at a moment when there is nothing to fetch."""
        now = clock.monotonic()
        if self._failures or now < min(self._reconcile_at, self._sweep_at):
            return
        try:
            if now >= self._reconcile_at:
                self._reconcile()
            if now >= self._sweep_at:
                self._sweep_at = now + SWEEP_SECONDS
                self._broker.sweep()
        except redis.RedisError as error:
            self._lost(error)

    def _take(self, bodies: Iterable[bytes | None]) -> bool:
        """Queue what can be read; False when something could not."""
        clean = True
        for body in bodies:
            message = self._read(body)
            if message is None:
                clean = False
            else:
                self._held.add(message.options["redis_message_id"])
                self._ready.append(message)
        return clean

    def _reconcile(self) -> None:
        """Make Redis's list of what we hold true again.

        An id that we do not know came with a lost reply (back to the queue with it: dramatiq strands those for as long
        as the process lives) or with a body that cannot be read (set aside, so that its neighbours go on).
        """
        known = {message_id.encode() for message_id in list(self._held)}
        known.update(message_id.encode() for message_id in list(self._done))
        strays = {key: body for key, body in self._broker.held(self._queue).items() if key not in known}
        good = [key for key, body in strays.items() if (found := self._read(body)) and _id(found).encode() == key]
        bad = [key for key in strays if key not in good]
        self._broker.give_back(self._queue, good)
        if bad:
            self._broker.quarantine(self._queue, bad)
            self.rejected += len(bad)
            _log.error("%s: set aside %d wake-ups that cannot be read: %s", self._queue, len(bad), bad[:10])
        self._reconcile_at = clock.monotonic() + RECONCILE_SECONDS

    def _read(self, body: bytes | None) -> MessageProxy | None:
        """The message, if it is one that a worker thread can take without harm."""
        if body is None:
            return None
        try:
            message = cast("Any", Message.decode(body))  # pyright: ignore[reportUnknownMemberType]
        except DecodeError:
            return None
        sound = (
            message.queue_name == self._queue
            and isinstance(message.actor_name, str)
            and message.actor_name in self._broker.actors
            and isinstance(message.kwargs, dict)
            and isinstance(message.options, dict)
            and _sound_options(cast("dict[str, object]", message.options))
        )
        return MessageProxy(message) if sound else None

    def _give_back(self, messages: deque[MessageProxy]) -> None:
        message_ids = [_id(message) for message in messages]
        messages.clear()
        self._held.difference_update(message_ids)
        try:
            self._broker.give_back(self._queue, message_ids)
        except redis.RedisError as error:
            _log.warning("%s: %d wake-ups not given back: %s", self._queue, len(message_ids), error)


def _sound_options(options: dict[str, object]) -> bool:
    message_id = options.get("redis_message_id")
    return isinstance(message_id, str) and message_id.isascii() and "eta" not in options


def _id(message: MessageProxy) -> str:
    return message.options["redis_message_id"]
