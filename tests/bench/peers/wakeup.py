"""Dramatiq with our broker and consumer (pushed wake-ups) but its own results, and no Postgres: what the truth costs.

`python -m tests.bench.peers.wakeup URL` is the worker.
"""

import signal
import sys
import threading
from typing import Any

from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from tests.bench.peers import Process
from tests.bench.peers.bare import QUEUE, THREADS, Bare, declare
from workers.broker import WakeBroker
from workers.worker import PushedWorker

NAMESPACE = "bench-wakeup"


def make_broker(url: str) -> WakeBroker:
    results = Results(backend=RedisBackend(url=url, namespace=f"{NAMESPACE}-results"))
    return WakeBroker(url, namespace=NAMESPACE, middleware=[results])


class WakeUp(Bare):
    name = "Dramatiq + wake-up"
    settings = f"our broker and consumer, Results only, 1 process × {THREADS} threads"

    def __init__(self, redis_url: str) -> None:
        super().__init__(redis_url)
        self.broker.client.close()
        self.broker = make_broker(redis_url)
        self.noop, self.answered = declare(self.broker)

    def start(self) -> None:
        self._process = Process(["-m", "tests.bench.peers.wakeup", self._url], {})


def main(url: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    broker: Any = make_broker(url)
    declare(broker)
    worker = PushedWorker(broker, queues={QUEUE}, threads=THREADS)
    worker.start()
    ended.wait()
    worker.stop(10_000)
    broker.close()


if __name__ == "__main__":
    main(sys.argv[1])
