"""Shows the backlog to Prometheus: one process for the whole fleet, reading Postgres (architecture.md §1).

Empty reads 0; when the source fails, the backlog's series are absent and `muniment_exporter_up` is 0, never a false 0
(queue-facts.md C2). A snapshot is read at scrape time and serves for a second, or ten times as long as reading it took,
so that no number of scrapers can load the database.
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from types import FrameType

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.budget.caps import Total, totals
from core.clock import monotonic, now
from core.jobs.backlog import DeferredReason, QueueBacklog, RoleCount, backlog, deferred_reasons, role_counts
from core.settings import Settings
from core.store.database import Database
from workers.metrics import OTHER, queue_labels, serve_metrics
from workers.money import deferred_families, money_families
from workers.queues import GROUPS

_log = logging.getLogger(__name__)

ROLES = ("relay", *(f"worker-{group}" for group in GROUPS))
"""Of processes that report themselves; any other is counted as `other`."""
CACHE_SECONDS = 1.0
CACHE_FACTOR = 10
CACHE_MAX_SECONDS = 30.0
ANSWER_SECONDS = 4.0
"""How long a scrape waits for Postgres: below Prometheus's default time-out, so that `up 0` still arrives."""

QUEUE_GAUGES = {
    "muniment_ready_oldest_age_seconds": "Age of the oldest job that could run now.",
    "muniment_ready_jobs": "Jobs that could run now.",
    "muniment_unsent_oldest_age_seconds": "Age of the oldest ready job that is owed a wake-up and has none.",
    "muniment_inflight_oldest_age_seconds": "Age of the oldest attempt under work.",
    "muniment_inflight_jobs": "Jobs under work.",
    "muniment_parked_jobs": "Jobs that wait for a later try or for their time, or behind a write that does.",
    "muniment_deferred_jobs": "Jobs that wait for money or a model.",
    "muniment_waiting_jobs": "Jobs whose children are outstanding.",
    "muniment_dead_jobs": "Jobs that used up their attempts; a person may retry them.",
}
"""Name and meaning; the rest of the name is the field of `QueueBacklog`."""


@dataclass(frozen=True)
class Snapshot:
    """What Postgres said. `read_at` by the monotonic clock, `taken_at` as Unix time; `seconds`: how long it took."""

    queues: list[QueueBacklog]
    roles: list[RoleCount]
    read_at: float
    taken_at: float
    seconds: float
    totals: Sequence[Total] = ()
    deferred: Sequence[DeferredReason] = ()

    @property
    def serves(self) -> float:
        """For how many seconds it may be shown."""
        return min(max(CACHE_SECONDS, CACHE_FACTOR * self.seconds), CACHE_MAX_SECONDS)


class BacklogCollector(Collector):
    """Reads at most one snapshot at a time, whatever number of scrapes ask for it."""

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="backlog")
        self._lock = threading.Lock()
        self._reading: Future[Snapshot] | None = None
        self._last: Snapshot | None = None
        self._problem = "nothing was read yet"

    def close(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)

    def problems(self) -> list[str]:
        """Why there is no backlog to show; empty when there is one."""
        return [self._problem] if self._problem else []

    def describe(self) -> Iterable[Metric]:
        return self._families(None)

    def collect(self) -> Iterator[Metric]:
        yield from self._families(self._snapshot())

    def _snapshot(self) -> Snapshot | None:
        with self._lock:
            if self._last is not None and monotonic() - self._last.read_at < self._last.serves:
                return self._last
            if self._reading is None or self._reading.done():
                self._reading = self._reader.submit(self._take)
            reading = self._reading
        try:
            return reading.result(ANSWER_SECONDS)
        except FutureTimeout:
            return self._failed("Postgres did not answer in time")
        except Exception as error:  # whatever kept the snapshot away: the answer is "unknown", never a number
            return self._failed(f"{type(error).__name__}: {error}".strip())

    def _take(self) -> Snapshot:
        """One that comes too late for its scrape serves the next."""
        self._last = snapshot = self._read()
        if self._problem:
            _log.info("the backlog can be read")
        self._problem = ""
        return snapshot

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            _log.error("the backlog cannot be read: %s", problem)
        self._problem = problem

    def _families(self, snapshot: Snapshot | None) -> list[Metric]:
        families: list[Metric] = []
        for name, meaning in QUEUE_GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=("queue", "stage", "lane"))
            for entry in snapshot.queues if snapshot else ():
                family.add_metric(queue_labels(entry.queue), float(getattr(entry, name.removeprefix("muniment_"))))
            families.append(family)
        alive = GaugeMetricFamily("muniment_processes_alive", "Processes that reported within 30 s.", labels=("role",))
        skew = GaugeMetricFamily(
            "muniment_clock_skew_seconds",
            "Largest difference of a live process's clock from Postgres's.",
            labels=("role",),
        )
        for role, (count, skew_ms) in _by_role(snapshot.roles).items() if snapshot else ():
            alive.add_metric((role,), count)
            skew.add_metric((role,), skew_ms / 1000)
        up = GaugeMetricFamily("muniment_exporter_up", "1 when the backlog could be read for this scrape.")
        up.add_metric((), 1 if snapshot else 0)
        success = GaugeMetricFamily(
            "muniment_exporter_last_success_timestamp_seconds", "When the backlog was last read; Unix time."
        )
        if self._last:
            success.add_metric((), self._last.taken_at)
        families += money_families(snapshot.totals if snapshot else ())
        families += deferred_families(snapshot.deferred if snapshot else None)
        return [*families, alive, skew, up, success]


def _by_role(counts: Iterable[RoleCount]) -> dict[str, tuple[int, int]]:
    """(alive, skew in ms) of every known role, and of all others together."""
    found: dict[str, tuple[int, int]] = {role: (0, 0) for role in (*ROLES, OTHER)}
    for entry in counts:
        role = entry.role if entry.role in found else OTHER
        alive, skew = found[role]
        found[role] = (alive + entry.alive, max(skew, entry.clock_skew_ms))
    return found


class Exporter:
    """The collector on its own address; use as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._db = Database(settings.secret("database_url"), name="exporter", size=1, prepare=settings.prepare)
        self.registry = CollectorRegistry()
        self._collector = BacklogCollector(self._read)
        self.registry.register(self._collector)

    def __enter__(self) -> "Exporter":
        self._server = serve_metrics(self._settings.exporter_bind, self.registry, self._collector.problems)
        self._db.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._db.close()
        self._collector.close()

    @property
    def port(self) -> int:
        return self._server.port

    def _read(self) -> Snapshot:
        began = monotonic()
        with self._db.system() as tx:
            queues = backlog(tx, self._settings.inflight_interactive, self._settings.inflight_bulk)
            roles = role_counts(tx)
            money, deferred = totals(tx), deferred_reasons(tx)
        ended = monotonic()
        return Snapshot(queues, roles, ended, now().timestamp(), ended - began, money, deferred)


def run_exporter(settings: Settings, stop: threading.Event | None = None) -> None:
    """Serves until `stop` is set; without one, until SIGTERM or SIGINT. Settings: DATABASE_URL (exporter's role) and
    EXPORTER_BIND. Raises SettingsError when the address is no good; a database that is away is not an error here."""
    stopping = stop or threading.Event()
    if stop is None:

        def finish(number: int, frame: FrameType | None) -> None:
            stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, finish)
    with Exporter(settings) as exporter:
        _log.info("serving the backlog on port %d", exporter.port)
        stopping.wait()
