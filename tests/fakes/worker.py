"""A process of its own for tests that kill: `python -m tests.fakes.worker worker GROUP [KIND…]`, `… relay`, or `… accept`.

`watched` is a worker under the product's own watch, which ends a broken one; its clocks are faster.
A worker knows the test kinds, or only those named. `accept` reads lines of JSON `[tenant, job, kind, lane, store, payload]`
and prints the id of each job once it is accepted. All print `ready`, are set up by the environment, and end at SIGTERM.
"""

import json
import logging
import signal
import sys
import threading
from uuid import UUID

from prometheus_client import CollectorRegistry

from core.faults import Faults
from core.jobs import kinds as product
from core.jobs.model import JobRequest
from core.settings import load
from core.store.database import Database
from tests.fakes.kinds import ACTORS, KINDS
from workers import keeper, main
from workers.broker import WakeBroker
from workers.metrics import WorkerMetrics
from workers.relay import Relay
from workers.submit import Submitter

GRACE_SECONDS = 1.0


def worker(group: str, names: list[str]) -> None:
    process = _process(group, names)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    process.start()
    print("ready", flush=True)
    stopping.wait()
    process.stop()


def watched(group: str) -> None:
    keeper.WEDGED_SECONDS = 0.5
    main.WATCH_SECONDS, main.BROKEN_SECONDS = 0.1, 0.5
    print("ready", flush=True)
    main.serve(_process(group, []), load())


def _process(group: str, names: list[str]) -> main.WorkerProcess:
    known = names or list(KINDS)
    return main.WorkerProcess(
        load(),
        group,
        more_kinds={name: KINDS[name] for name in known},
        more_actors={name: ACTORS[name] for name in known},
    )


def relay() -> None:
    settings = load()
    broker = WakeBroker(settings.secret("redis_url"))
    with Database(settings.direct_url, name="relay", size=2) as db:
        one = Relay(db, broker, settings, WorkerMetrics(CollectorRegistry()), Faults(settings.faults))
        signal.signal(signal.SIGTERM, lambda *_: one.stop())
        print("ready", flush=True)
        one.run()
    broker.close()


def accept() -> None:
    settings = load()
    known = product.kinds(settings) | KINDS
    with Database(settings.secret("database_url"), name="accept", size=3) as db:
        submitter = Submitter(db, settings.secret("redis_url"), settings, Faults(settings.faults))
        submitter.open()
        print("ready", flush=True)
        for line in sys.stdin:
            tenant, job, kind, lane, store, payload = json.loads(line)
            request = JobRequest(UUID(tenant), UUID(job), known[kind], lane, payload, store=store)
            submitter.accept(request).add_done_callback(lambda done: print(_told(done), flush=True))
        submitter.close()


def _told(done: "object") -> str:
    error = done.exception()  # pyright: ignore[reportAttributeAccessIssue]
    return f"error {error}" if error else str(done.result().job_id)  # pyright: ignore[reportAttributeAccessIssue]


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")
    keeper.GRACE_SECONDS = GRACE_SECONDS
    role, *arguments = sys.argv[1:]
    if role == "worker":
        worker(arguments[0], arguments[1:])
    elif role == "watched":
        watched(arguments[0])
    else:
        {"relay": relay, "accept": accept}[role]()
