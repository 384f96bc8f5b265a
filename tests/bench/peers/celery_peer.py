"""Celery on Redis, prefork with two processes. `app` is what Celery's own command line imports."""

import os
from typing import Any

import redis
from celery import Celery

from tests.bench.peers import Process

CONCURRENCY = 2
QUEUE = "celery"


def make_app(url: str) -> Any:
    made = Celery("bench", broker=url)
    made.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)

    def noop(tenant_id: str, job_id: str) -> None:
        del tenant_id, job_id

    made.task(noop, name="noop")
    return made


class CeleryPrefork:
    name = "Celery"
    settings = f"Redis, prefork -c {CONCURRENCY}, results ignored, no gossip, mingle or heartbeat"

    def __init__(self, redis_url: str) -> None:
        """The whole database of `redis_url` is Celery's."""
        self._url = redis_url
        self._app = make_app(redis_url)
        self._client: Any = redis.Redis.from_url(redis_url)
        self._process: Process | None = None

    def enqueue(self, count: int) -> None:
        task = self._app.tasks["noop"]
        with self._app.connection_for_write() as connection:
            for number in range(count):
                task.apply_async(("tenant", f"job-{number}"), connection=connection)

    def left(self) -> int:
        return self._client.llen(QUEUE) + self._client.hlen("unacked")

    def start(self) -> None:
        self._process = Process(
            [
                *("-m", "celery", "-A", "tests.bench.peers.celery_peer", "worker", "-c", str(CONCURRENCY)),
                *("--pool", "prefork", "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"),
            ],
            {"BENCH_CELERY_URL": self._url},
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def close(self) -> None:
        self.stop()
        self._app.close()
        self._client.close()


if "BENCH_CELERY_URL" in os.environ:  # we are the worker
    app = make_app(os.environ["BENCH_CELERY_URL"])
