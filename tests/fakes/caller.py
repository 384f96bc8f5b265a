"""One process that asks a model many times on a clock that runs faster: `python -m tests.fakes.caller JSON`.

All such processes share the clock: the machine's, times `scale`. Every time that a rule names (waits, time-outs, open
periods of the breaker, how often its state is fetched) is that much shorter; only the retry budget's minute in Postgres is a
real one. It says `ready` and begins at the next line of its input.

What happens is written as JSON lines to `log`: `sent` (an attempt leaves), `opened` (the tenth failure in a row is in
Postgres), `ended` (a call, and how).
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from core.budget.model import Spender
from core.budget.money import Money
from core.errors import MunimentError
from core.models.attempt import Parts, Unobserved
from core.models.circuits import REFRESH_SECONDS, Circuits
from core.models.gateway import Gateway
from core.models.model import Call, Noul
from core.models.profiles import parse_model
from core.models.shared_circuits import KnownBreaker, SharedCircuits
from core.models.timing import Timing, doze
from core.models.transport import Raw, Transport
from core.settings import load
from core.store.database import Database
from tests.fakes.models import Given

THREADS = 16
KEY_ENV = "MODEL_KEY"


@dataclass(frozen=True)
class Work:
    """`calls` are spread evenly over `seconds` of the fast clock."""

    dsn: str
    endpoint: str
    tenant: str
    log: str
    calls: int
    seconds: float
    scale: float
    seed: int


class Events:
    def __init__(self, path: Path, timing: Timing) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._timing = timing
        self._lock = threading.Lock()

    def add(self, what: str, **more: Any) -> None:
        line = json.dumps({"what": what, "at": self._timing.monotonic(), **more})
        with self._lock:
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()


class Watched(Transport):
    def __init__(self, timing: Timing, events: Events) -> None:
        super().__init__(timing.monotonic)
        self._events = events

    def post(self, url: str, body: bytes, key: str, seconds: float, request_id: str) -> Raw:
        self._events.add("sent")
        return super().post(url, body, key, seconds, request_id)


class Scaled(SharedCircuits):
    def __init__(self, db: Database, scale: float, events: Events) -> None:
        super().__init__(db)
        self._scale = scale
        self._events = events

    def breaker_failed(self, circuit: str, threshold: int, open_seconds: float) -> KnownBreaker:
        known = super().breaker_failed(circuit, threshold, open_seconds / self._scale)
        if known.failures == threshold:
            self._events.add("opened")
        return self._slow(known)

    def breaker_trial(self, circuit: str, holder: str, trial_seconds: float) -> bool:
        return super().breaker_trial(circuit, holder, trial_seconds / self._scale)

    def breakers(self) -> Mapping[str, KnownBreaker]:
        return {circuit: self._slow(known) for circuit, known in super().breakers().items()}

    def _slow(self, known: KnownBreaker) -> KnownBreaker:
        left = known.open_left_seconds
        return KnownBreaker(known.failures, None if left is None else left * self._scale)


def fast(scale: float, dice: Callable[[], float]) -> Timing:
    """The machine's clock, `scale` times as fast, for all processes alike."""
    began = time.time() - time.monotonic()
    return Timing(
        lambda: time.monotonic() * scale,
        lambda: datetime.fromtimestamp(began + time.monotonic(), UTC),
        lambda seconds, stop: doze(seconds / scale, stop),
        dice,
    )


def main() -> None:
    work = Work(**json.loads(sys.argv[1]))
    timing = fast(work.scale, random.Random(work.seed).random)
    events = Events(Path(work.log), timing)
    settings = load({}, database_url=work.dsn)
    profile = parse_model(
        "jev", {"kind": "jev", "model": "jev-1.13.0", "testEndpoint": work.endpoint, "keyEnv": KEY_ENV}, {KEY_ENV}
    )
    spender = Spender(UUID(work.tenant), None, None, "judge", "read")
    with (
        Money(settings, {"read": 256, "flush": 32, "consolidation": 64}) as money,
        Database(work.dsn, name="circuits", size=2) as db,
    ):
        circuits = Circuits(timing, Scaled(db, work.scale, events), str(work.seed))
        parts = Parts(Watched(timing, events), money.ledger, circuits, timing, Unobserved())
        gateway = Gateway(parts, money.shares, Given({}), lambda _: "a-key")
        done = threading.Event()
        refreshing = threading.Thread(target=refresh, args=(circuits, done, REFRESH_SECONDS / work.scale))
        refreshing.start()

        def one(number: int) -> None:
            try:
                gateway.decide(profile, f"{work.seed} {number}", {"q": Noul("?")}, Call(spender))
            except MunimentError as error:
                events.add("ended", how=type(error).__name__, status=error.status)
            except Exception as error:
                events.add("ended", how=f"unnamed {type(error).__name__}", status=0)
            else:
                events.add("ended", how="ok", status=200)

        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS) as threads:
            for number in range(work.calls):
                due = began + number * work.seconds / work.scale / work.calls
                time.sleep(max(0.0, due - time.monotonic()))
                threads.submit(one, number)
        done.set()
        refreshing.join()
        gateway.close()
    events.close()
    print("done", flush=True)


def refresh(circuits: Circuits, done: threading.Event, seconds: float) -> None:
    while not done.wait(seconds):
        circuits.refresh()


if __name__ == "__main__":
    main()
