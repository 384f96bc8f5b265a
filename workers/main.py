"""One worker process: a group's queues, the keeper, metrics, and a graceful stop."""

import ctypes
import logging
import os
import signal
import threading
from contextlib import ExitStack
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from core.errors import MunimentError, Unavailable
from core.faults import Faults
from core.jobs.kinds import kinds
from core.jobs.model import Kind
from core.models.embedders import Embedders
from core.search.lexical.service import LexicalIndex
from core.search.service import Engines
from core.search.vectors.cache import VectorCache
from core.settings import Settings, SettingsError
from core.store.database import Database
from core.store.roles import check_app_role
from workers.actors.embedding import EmbedStore
from workers.actors.importing import import_archive
from workers.actors.indexing import maintain_index
from workers.actors.reading import ReadMemory, SearchStore
from workers.actors.work import Actor
from workers.broker import WakeBroker
from workers.keeper import Keeper
from workers.metrics import WorkerMetrics, serve_metrics
from workers.queues import GROUPS
from workers.runner import Runner
from workers.worker import WakeWorker

_log = logging.getLogger(__name__)

ACTORS: dict[str, Actor] = {"import": import_archive, "index": maintain_index}
"""What a worker can do without anything kept between jobs; writes are committed by `Runner` itself, a store at a time."""
POOL_MOST = 16
TRY_AGAIN_SECONDS = (0.2, 1.0, 3.0)
WATCH_SECONDS = 2.0
BROKEN_SECONDS = 30.0
"""After this long with a thread that ended or hangs, the process stops, so that its orchestrator starts a sound one."""


_MALLOPT = {"M_ARENA_MAX": (-8, 2), "M_MMAP_THRESHOLD": (-3, 1024 * 1024), "M_TRIM_THRESHOLD": (-1, 16 * 1024 * 1024)}
"""Parameters of glibc's mallopt(3): number and value."""


def _share_memory() -> None:
    """What one thread's arrays leave is used by the next one's, or given back.

    By itself glibc gives each thread an arena, and raises the size from which an array goes back to the system: a worker of
    64 threads kept 800 MiB after searches in stores that its caches held 58 MiB of (measured)."""
    libc: Any = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc alone
        for number, value in _MALLOPT.values():
            libc.mallopt(number, value)


class WorkerProcess:
    """Everything a worker process runs; `start`, then `stop`. Tests and benchmarks give their own kinds and actors."""

    def __init__(
        self,
        settings: Settings,
        group: str,
        *,
        more_kinds: dict[str, Kind] | None = None,
        more_actors: dict[str, Actor] | None = None,
    ) -> None:
        if group not in GROUPS:
            raise SettingsError(f"there is no worker group {group!r}: choose one of {', '.join(GROUPS)}")
        self._settings = settings
        self._group = GROUPS[group]
        self._faults = Faults(settings.faults)
        size = settings.pool_size or min(self._group.threads + 1, POOL_MOST)
        self.registry = CollectorRegistry()
        self._db = Database(
            settings.secret("database_url"), name=f"worker-{group}", size=size, prepare=settings.prepare
        )
        self._metrics = WorkerMetrics(self.registry, queues=self._group.queues, pool_waiting=self._db.waiting)
        self._broker = WakeBroker(settings.secret("redis_url"))
        self._embedders = Embedders()
        engines = Engines(
            LexicalIndex(settings.index_cache_bytes), VectorCache(settings.vector_cache_bytes), self._embedders
        )
        keeping: dict[str, Actor] = {
            "read": ReadMemory(engines), "search": SearchStore(engines), "embed": EmbedStore(self._embedders),
        }  # fmt: skip
        self._worker: WakeWorker | None = None
        self._stopping = threading.Event()
        # Its own connection: work that holds all others must not cost the leases.
        self._keeper_db = Database(settings.secret("database_url"), name="keeper", size=1, prepare=settings.prepare)
        self._keeper = Keeper(
            self._keeper_db,
            settings,
            role=f"worker-{group}",
            queues=self._group.queues,
            done=lambda: 0 if self._worker is None else self._worker.status().handled,
            on_lost=self._metrics.lease_lost,
        )
        self._runner = Runner(
            self._db,
            self._broker,
            settings,
            self._keeper,
            self._metrics,
            kinds=kinds(settings) | (more_kinds or {}),
            actors=ACTORS | keeping | (more_actors or {}),
            faults=self._faults,
        )

    def start(self) -> None:
        # Threads of BLAS fight with ours: with two, loading 100,000 vectors took fifty times as long (measured).
        threadpool_limits(limits=1, user_api="blas")
        _share_memory()
        self._db.open()
        check_app_role(self._db)
        self._keeper_db.open()
        self._keeper.start()
        self._worker = WakeWorker(self._broker, self._group.queues, self._group.threads, self._handle)
        self._worker.start()

    def _handle(self, tenant_id: UUID, job_id: UUID, queue: str) -> None:
        """Tries again when Postgres was away, since a wake-up that is spent comes back only after `resend_seconds`."""
        for pause in (*TRY_AGAIN_SECONDS, None):
            try:
                self._runner.handle(tenant_id, job_id, queue)
            except MunimentError as error:
                again = isinstance(error, Unavailable) and pause is not None
                if again and not self._stopping.wait(pause):
                    continue
                _log.warning("the wake-up of job %s is spent; the relay sends it again: %s", job_id, error)
            return

    def stop(self) -> None:
        """Running jobs get `shutdown_seconds` to end; the leases of what does not end run out."""
        self._stopping.set()
        self._runner.stop()
        if self._worker is not None and not self._worker.stop(self._settings.shutdown_seconds):
            _log.warning("jobs were still running at the end of the grace period; others may have them now")
            self._release()
        self._keeper.stop()
        self._keeper_db.close()
        self._broker.close()
        self._embedders.close()
        self._db.close()

    def _release(self) -> None:
        """Being stopped is no crash: what still runs is let go, and fenced."""
        try:
            self._runner.release(self._keeper.held())
        except MunimentError as error:
            _log.warning("their leases will run out: %s", error)

    def reasons(self) -> list[str]:
        """Why the worker is not ready, Redis included."""
        found = [] if self._worker is None else list(self._worker.status().reasons)
        if not self._keeper.alive():
            found.append("the keeper ended: leases are not renewed")
        found += [f"job {job} overran its time, and its thread cannot be ended" for job in self._keeper.wedged()]
        return found

    def broken(self) -> bool:
        """A thread ended, or cannot be ended: nothing in this process can mend that."""
        return any("ended" in reason for reason in self.reasons())


def run_worker(settings: Settings, group: str) -> None:
    """A worker's process, until SIGTERM or SIGINT; a second signal ends it at once. Raises SettingsError."""
    if GROUPS[group].niceness:
        os.nice(GROUPS[group].niceness)
    serve(WorkerProcess(settings, group), settings)


def serve(process: WorkerProcess, settings: Settings) -> None:
    """Runs a worker until a signal stops it, or until it is broken: then SystemExit with status 1, after the jobs that still
    run have had `shutdown_seconds` to end."""
    stopping = threading.Event()

    def stop(*_: object) -> None:
        if stopping.is_set():
            os._exit(1)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with ExitStack() as stack:
        process.start()
        stack.callback(process.stop)
        if settings.metrics_bind:
            stack.enter_context(serve_metrics(settings.metrics_bind, process.registry, process.reasons))
        broken_for = 0.0
        while not stopping.wait(WATCH_SECONDS):
            broken_for = broken_for + WATCH_SECONDS if process.broken() else 0.0
            if broken_for > BROKEN_SECONDS:
                _log.critical("the worker is broken and stops: %s", "; ".join(process.reasons()))
                raise SystemExit(1)
