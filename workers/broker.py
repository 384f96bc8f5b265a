"""Dramatiq's Redis broker, reduced to what a wake-up needs (architecture.md §1, queue-facts.md B1–B5).

Postgres owns retries, delays, results and dead letters, so none of Dramatiq's middleware is on by default. A message
says only "look at this job"; it may come late, twice, out of order or never. Enqueueing also publishes on the queue's
wake channel, in the same round trip, so that an idle consumer starts at once instead of polling.

Private parts of Dramatiq 2.2.1 relied on: the arguments of its dispatch script and the names of its Redis keys.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.common import current_millis
from dramatiq.message import Message
from dramatiq.middleware import Middleware
from redis.backoff import ConstantBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from core import ids
from workers.consumer import SWEEP_SECONDS, WakeConsumer
from workers.queues import QUEUES
from workers.roundtrip import Command, round_trip

ACTOR = "wake"
"""The one actor: an old worker and a new API always agree on it (failure case D9)."""
HEARTBEAT_TIMEOUT_MS = 20_000
"""A consumer is heard each second; what one that is gone had fetched and not yet claimed goes to others after this."""
QUARANTINE_MS = 86_400_000


def connect(url: str, *, timeout: float = 5.0) -> redis.Redis:
    """A client whose every call ends: at most two tries, each with `timeout` seconds a socket operation.

    One retry covers a pooled connection that died with a restarted server; more would hide an outage from callers that
    have a better plan (the consumer's own back-off, the relay's re-send).
    """
    return redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        protocol=2,
        socket_timeout=timeout,
        socket_connect_timeout=min(timeout, 2.0),
        socket_keepalive=True,
        health_check_interval=15,
        retry=Retry(ConstantBackoff(0.05), 1, (redis.ConnectionError,)),
    )


class WakeBroker(RedisBroker):
    """Sends wake-ups, and consumes them for one worker. Thread-safe; must not be shared across a fork."""

    # Dramatiq would probe the server's Lua stack on first use; our fetches ask for at most a worker's threads.
    _max_unpack_size_val = 1_000

    # Dramatiq and redis-py leave these partly untyped.
    client: Any
    scripts: dict[str, Any]
    actors: dict[str, Any]
    queues: set[str]

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "muniment",
        middleware: Sequence[Middleware] = (),
        poll_seconds: float = 1.0,
        timeout: float = 5.0,
    ) -> None:
        """`poll_seconds`: how long a consumer trusts that no published wake-up was lost; below the heartbeat's 20 s."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            client=connect(url, timeout=timeout),
            namespace=namespace,
            middleware=list(middleware),
            maintenance_chance=0,  # no lottery, no KEYS in the hot path: `sweep` does it
            heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
            dead_message_ttl=QUARANTINE_MS,
        )
        self.poll_seconds = poll_seconds
        self.draining = False
        """Set: take nothing more; consumers give back what they hold and only acknowledge."""

    def declare_queue(self, queue_name: str) -> None:
        """Without a delay queue: delays are rows with a `run_at`, and nobody need poll an empty `.DQ`."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> WakeConsumer:
        """A consumer whose idle wait is `poll_seconds`; `timeout` is Dramatiq's and unused."""
        return WakeConsumer(self, queue_name, prefetch)

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, queue: str, tenant_id: UUID, job_id: UUID) -> None:
        """Wake a worker for one job. Raises redis.RedisError when Redis did not take it: the relay sends it later."""
        self.send_many([(queue, tenant_id, job_id)])

    def send_many(self, wakes: Iterable[tuple[str, UUID, UUID]]) -> None:
        """Wake workers for many jobs (queue, tenant, job) in one round trip. Errors as `send`; some may be out then."""
        self._push([self._message(queue, tenant_id, job_id) for queue, tenant_id, job_id in wakes])

    def do_enqueue(self, queue_name: str, message_id: str, body: bytes) -> None:
        """What `enqueue` (and so `actor.send`) ends in: push and publish together."""
        self._push([(queue_name, message_id, body)])

    @staticmethod
    def _message(queue: str, tenant_id: UUID, job_id: UUID) -> tuple[str, str, bytes]:
        message_id = str(ids.uuid7())
        message: Message[None] = Message(
            queue_name=queue,
            actor_name=ACTOR,
            args=(str(tenant_id), str(job_id), queue),
            kwargs={},
            options={"redis_message_id": message_id},
            message_id=message_id,
        )
        return queue, message_id, message.encode()

    def _push(self, messages: Sequence[tuple[str, str, bytes]]) -> None:
        commands = [self._dispatched("enqueue", queue, message_id, body) for queue, message_id, body in messages]
        commands += [self._published(queue) for queue in {queue for queue, _, _ in messages}]
        self._run(commands)

    # -- one queue, for its consumer ----------------------------------------------------------------------------------

    def exchange(self, queue: str, done: Sequence[str], count: int) -> list[bytes | None]:
        """Acknowledge the message ids `done` and fetch up to `count` bodies, in one round trip; also the heartbeat.

        None stands for a message whose body is gone.
        """
        commands = [self._dispatched("ack", queue, message_id) for message_id in done]
        commands.append(self._dispatched("fetch", queue, count))
        return self._run(commands)[-1]

    def held(self, queue: str) -> dict[bytes, bytes | None]:
        """What Redis thinks this process holds unacknowledged: message id to body."""
        members: set[bytes] = self.client.smembers(f"{self.namespace}:__acks__.{self.broker_id}.{queue}")
        if not members:
            return {}
        message_ids = list(members)
        bodies: list[bytes | None] = self.client.hmget(f"{self.namespace}:{queue}.msgs", message_ids)
        return dict(zip(message_ids, bodies, strict=True))

    def give_back(self, queue: str, message_ids: Sequence[str | bytes]) -> None:
        """Return messages to the queue, and wake the other consumers for them."""
        if message_ids:
            self._run([self._dispatched("requeue", queue, *message_ids), self._published(queue)])

    def quarantine(self, queue: str, message_ids: Sequence[str | bytes]) -> None:
        """Set messages aside in the queue's `.XQ` for a day, so that a person can look at them."""
        self._run([self._dispatched("nack", queue, message_id) for message_id in message_ids])

    # -- housekeeping -------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Return the messages of processes that died, drop old quarantine and forget dead processes.

        Correctness never needs this (the relay re-sends what Postgres owes); it keeps Redis from growing. Dramatiq's
        own maintenance runs KEYS for each dead process, so the fleet does it at most once in `SWEEP_SECONDS`.
        """
        if self.client.set(f"{self.namespace}:__sweep__", self.broker_id, nx=True, ex=SWEEP_SECONDS):
            queues = sorted({*QUEUES, *self.queues})
            self._run([self._dispatched("qsize", queue, maintenance=True) for queue in queues])

    def close(self) -> None:
        """Sign off and close the connections. What is still held comes back by another process's sweep."""
        try:
            if not any(
                self.client.exists(f"{self.namespace}:__acks__.{self.broker_id}.{queue}") for queue in self.queues
            ):
                self.client.zrem(f"{self.namespace}:__heartbeats__", self.broker_id)
        except redis.RedisError:
            self.logger.info("Redis is away: this process's heartbeat is left to the sweep.")
        self.client.close()

    # -- the wire -----------------------------------------------------------------------------------------------------

    def channel(self, queue: str) -> str:
        """The pub/sub channel that says: something was queued."""
        return f"{self.namespace}:wake:{queue}"

    def _published(self, queue: str) -> Command:
        return ("PUBLISH", self.channel(queue), b"")

    def _dispatched(self, command: str, queue: str, *args: Any, maintenance: bool = False) -> Command:
        return (
            "EVALSHA",
            self.scripts["dispatch"].sha,
            1,
            self.namespace,
            command,
            current_millis(),
            queue,
            self.broker_id,
            self.heartbeat_timeout,
            self.dead_message_ttl,
            int(maintenance),
            self._max_unpack_size_val,
            *args,
        )

    def _run(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip. A restarted server lacks the script: it gets it, then all of them again."""
        try:
            return round_trip(self.client, commands)
        except NoScriptError:
            self.client.script_load(self.scripts["dispatch"].script)
            return round_trip(self.client, commands)
