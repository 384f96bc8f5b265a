"""Dramatiq as its users run it: stock broker, default middleware, results in Redis, no Postgres anywhere.

Imported by Dramatiq's own command line as the worker's module; the address of Redis comes in `BENCH_REDIS_URL`.
"""

import os
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from tests.bench.peers import Process

NAMESPACE = "bench-bare"
THREADS = 8
WORKER_TIMEOUT_MS = 20
QUEUE = "default"


def make_broker(url: str) -> RedisBroker:
    broker = RedisBroker(url=url, namespace=NAMESPACE)
    broker.add_middleware(Results(backend=RedisBackend(url=url, namespace=f"{NAMESPACE}-results")))
    return broker


def declare(broker: Any) -> tuple[Any, Any]:
    """The two actors: a no-op without and one with a result."""

    @dramatiq.actor(actor_name="noop", broker=broker, queue_name=QUEUE)
    def noop(tenant_id: str, job_id: str) -> None:
        del tenant_id, job_id

    @dramatiq.actor(actor_name="answered", broker=broker, queue_name=QUEUE, store_results=True)
    def answered(tenant_id: str, job_id: str) -> dict[str, str]:
        del tenant_id
        return {"id": job_id}

    return noop, answered


class Bare:
    name = "bare Dramatiq"
    settings = f"RedisBroker, 1 process × {THREADS} threads, dramatiq_worker_timeout={WORKER_TIMEOUT_MS}"

    def __init__(self, redis_url: str) -> None:
        self._url = redis_url
        self.broker: Any = make_broker(redis_url)
        self.noop, self.answered = declare(self.broker)
        self._client: Any = redis.Redis.from_url(redis_url)
        self._process: Process | None = None

    def enqueue(self, count: int) -> None:
        for number in range(count):
            self.noop.send("tenant", f"job-{number}")

    def left(self) -> int:
        """A message's body is in this hash until it is acknowledged."""
        return self._client.hlen(f"{self.broker.namespace}:{QUEUE}.msgs")

    def start(self) -> None:
        self._process = Process(
            ["-m", "dramatiq", "tests.bench.peers.bare", "--processes", "1", "--threads", str(THREADS)],
            {"BENCH_REDIS_URL": self._url, "dramatiq_worker_timeout": str(WORKER_TIMEOUT_MS)},
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._client.close()
        self.broker.client.close()


if "BENCH_REDIS_URL" in os.environ:  # we are the worker
    worker_broker: Any = make_broker(os.environ["BENCH_REDIS_URL"])
    declare(worker_broker)
    dramatiq.set_broker(worker_broker)
