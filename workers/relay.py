"""The relay: moves ready rows to Redis, fairly and a bounded number at a time, and sweeps what some clock has changed.

Several may run; one leads, by a lease row with an epoch, and another takes over within the lease. Nothing here needs the
lead to be exclusive for correctness: rows are picked under locks and a wake-up too many is harmless. It only saves work.
"""

import json
import logging
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

import redis
from prometheus_client import CollectorRegistry

from core.budget.caps import settle_dead, write_caps
from core.budget.model import CURRENCIES, units
from core.clock import monotonic, now
from core.errors import MunimentError
from core.faults import Faults
from core.ids import uuid7
from core.jobs.model import Ending
from core.settings import Settings
from core.store.database import Database
from workers.broker import WakeBroker
from workers.channels import EVERY, Ear, answers, publish
from workers.keeper import TICK_SECONDS
from workers.metrics import WorkerMetrics, serve_metrics
from workers.queues import BULK, QUEUES, lane_of

_log = logging.getLogger(__name__)

NAME = "relay"
DISPATCH = 1_000
"""Wake-ups sent per queue and round, at most."""
SWEEP = 500
SWEEP_ROUNDS = 20
PRUNE = 5_000
SETTLE = 200
PRUNE_UPLOADS = 64
"""Rows of 1 MiB each."""
QUIET_SECONDS = 0.02
"""After a nudge, how long to gather more of them: one dispatch serves all."""
REDIS_PAUSE_SECONDS = 1.0
STUCK_SECONDS = 30.0


class Relay:
    """`run` until `stop`; `leads` says whether this one does the work."""

    def __init__(
        self, db: Database, broker: WakeBroker, settings: Settings, metrics: WorkerMetrics, faults: Faults | None = None
    ) -> None:
        self.process_id = uuid7()
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{self.process_id.hex[-8:]}"
        self.leads = False
        self._round_at = monotonic()
        self._db = db
        self._broker = broker
        self._settings = settings
        self._metrics = metrics
        self._faults = faults or Faults()
        self._stopping = threading.Event()
        self._nudges: SimpleQueue[str | None] = SimpleQueue()
        self._after: dict[str, UUID] = dict.fromkeys(QUEUES, UUID(int=0))
        self._resend: dict[str, float] = dict.fromkeys(QUEUES, settings.resend_seconds)
        self._paused_until = 0.0
        self._redis_away = False
        self._ear = Ear(broker.client, self._nudges.put)

    def stop(self) -> None:
        """May be called from a signal handler or another thread."""
        self._stopping.set()
        self._nudges.put(None)

    def run(self) -> None:
        self._ear.start()
        lead_at = sweep_at = poll_at = 0.0
        caps_written = not self._settings.budgets
        try:
            while not self._stopping.is_set():
                moment = monotonic()
                try:
                    if not caps_written:
                        with self._db.direct() as tx:
                            write_caps(tx, self._settings.budgets)
                        caps_written = True
                    if moment >= lead_at:
                        lead_at = moment + self._settings.relay_lease_seconds / 3
                        self._lead()
                    if self.leads and moment >= sweep_at:
                        sweep_at = moment + self._settings.sweep_seconds
                        self._sweep()
                    if self.leads and moment >= poll_at:
                        poll_at = moment + self._settings.relay_poll_seconds
                        self._dispatch(QUEUES)
                    self._round_at = monotonic()
                    nudged = self._listen(min(lead_at, sweep_at, poll_at) if self.leads else lead_at)
                    if self.leads and nudged:
                        self._dispatch([queue for queue in QUEUES if queue in nudged or EVERY in nudged])
                except MunimentError as error:
                    _log.warning("the relay goes on after: %s", error)
                    self._stopping.wait(1.0)
                except Exception:
                    _log.exception("the relay met an error and goes on")
                    self._stopping.wait(1.0)
        finally:
            self._ear.stop()
            self._resign()

    def reasons(self) -> list[str]:
        """Why the relay is not ready: it makes no rounds."""
        silent = monotonic() - self._round_at
        return [f"no round for {silent:.0f} s"] if silent > STUCK_SECONDS else []

    # -- leadership -----------------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        with self._db.direct() as tx:
            epoch: int | None = tx.value(
                "lead", name=NAME, holder=self.holder, lease=self._settings.relay_lease_seconds
            )
            tx.run(
                "report_process",
                process=self.process_id,
                role=NAME,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=[],
                keys=None,
                jobs_done=0,
                clock=now(),
            )
        if (epoch is not None) != self.leads:
            _log.info("the relay %s", "leads" if epoch is not None else "stands by")
        self.leads = epoch is not None

    def _resign(self) -> None:
        try:
            with self._db.direct() as tx:
                tx.run("resign", name=NAME, holder=self.holder)
                tx.run("forget_process", process=self.process_id)
        except MunimentError:
            _log.info("the lead could not be given up; it runs out by itself")

    # -- dispatch -------------------------------------------------------------------------------------------------------

    def _listen(self, until: float) -> set[str]:
        """Queues that were nudged; waits for the first nudge, then a moment for more."""
        nudged: set[str] = set()
        try:
            first = self._nudges.get(timeout=max(until - monotonic(), 0.001))
            if first is None:
                return nudged
            nudged.add(first)
            gather_until = monotonic() + QUIET_SECONDS
            while (left := gather_until - monotonic()) > 0:
                more = self._nudges.get(timeout=left)
                if more is None:
                    return nudged
                nudged.add(more)
        except Empty:
            pass
        return nudged

    def _dispatch(self, queues: tuple[str, ...] | list[str]) -> None:
        if monotonic() < self._paused_until:
            return
        with self._db.direct() as tx:
            ready = {row["queue"] for row in tx.rows("ready_queues", queues=list(queues))}
        for queue in filter(ready.__contains__, queues):
            bulk = lane_of(queue) == BULK
            with self._db.direct() as tx:
                rows = tx.rows(
                    "dispatch_writes" if queue.startswith("write.") else "dispatch_jobs",
                    queue=queue,
                    inflight=self._settings.inflight_bulk if bulk else self._settings.inflight_interactive,
                    limit=DISPATCH,
                    after=self._after[queue],
                    resend=self._resend[queue],
                )
            if not rows:
                continue
            if len(rows) >= DISPATCH:
                self._after[queue] = last_served(self._after[queue], [row["tenant_id"] for row in rows])
            self._faults.hit("relay.picked")
            self._send(queue, rows)

    def _send(self, queue: str, rows: list[dict[str, Any]]) -> None:
        try:
            self._broker.send_many([(queue, row["tenant_id"], row["job_id"]) for row in rows])
        except redis.RedisError as error:
            _log.warning("Redis took no wake-ups; they are owed and will be sent again: %s", error)
            self._redis_away = True
            self._paused_until = monotonic() + REDIS_PAUSE_SECONDS
            with self._db.direct() as tx:
                tx.run("unsend", tenants=[row["tenant_id"] for row in rows], jobs=[row["job_id"] for row in rows])
            return
        if self._redis_away:
            self._redis_away = False
            _log.warning("Redis takes wake-ups again")
        self._faults.hit("relay.sent")
        self._metrics.sent(queue, len(rows))

    # -- sweep ----------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        if self._faults.hit("relay.resend"):
            return
        for _ in range(SWEEP_ROUNDS):
            with self._db.direct() as tx:
                rows = tx.rows(
                    "sweep_jobs",
                    limit=SWEEP,
                    max_crashes=self._settings.max_crashes,
                    keep_days=self._settings.keep_job_days,
                )
            self._faults.hit("relay.swept")
            self._report(rows)
            if len(rows) < SWEEP:
                break
        self._settle_dead()
        with self._db.direct() as tx:
            tx.run("prune_idempotency_keys", hours=self._settings.keep_idempotency_hours, limit=PRUNE)
            tx.run("prune_uploads", hours=self._settings.keep_upload_hours, limit=PRUNE_UPLOADS)
            tx.run("prune_processes")
            tx.run("prune_breakers")
            waits = {
                row["queue"]: row["seconds"] or 0.0
                for row in tx.rows(
                    "queue_waits",
                    lease=self._settings.lease_seconds,
                    renew=self._settings.renew_seconds + TICK_SECONDS,
                )
            }
            for queue in QUEUES:
                self._resend[queue] = max(self._settings.resend_seconds, 3 * waits.get(queue, 0.0))

    def _settle_dead(self) -> None:
        """Reservations whose process is dead stand at their input estimates; its slices and shares go back."""
        for _ in range(SWEEP_ROUNDS):
            with self._db.direct() as tx:
                rows = settle_dead(tx, SETTLE)
            for row in rows:
                self._metrics.abandoned(row["provider"])
                _log.warning(
                    "reservation %s of %s was left by a dead process: settled at its input estimate, %s %s",
                    row["entry_id"], row["provider"], units(row["cost"]), CURRENCIES.get(row["provider"], ""),
                )  # fmt: skip
            if not rows:
                break

    def _report(self, rows: list[dict[str, Any]]) -> None:
        endings: list[Ending] = []
        for row in rows:
            self._metrics.swept(row["queue"], row["reason"])
            if row["reason"] == "resend":
                self._metrics.resent(row["queue"])
            if row["reason"] in {"dead", "lease-lost", "deadline"}:
                _log.warning("swept job %s of %s: %s", row["job_id"], row["queue"], row["reason"])
            if row["waiter"] is not None:
                state = "dead" if row["reason"] == "dead" else "failed"
                endings.append(Ending(row["job_id"], state, row["waiter"], error=json.loads(row["error"])))
        try:
            publish(self._broker.client, answers(endings))
        except redis.RedisError:
            _log.info("waiting clients poll: the sweep's answers could not be published")


def run_relay(settings: Settings) -> None:
    """The relay's process, until SIGTERM or SIGINT. Raises SettingsError when it cannot be started."""
    broker = WakeBroker(settings.secret("redis_url"))
    registry = CollectorRegistry()
    with Database(settings.direct_url, name="relay", size=2, prepare=settings.prepare) as db:
        metrics = WorkerMetrics(registry, pool_waiting=db.waiting)
        relay = Relay(db, broker, settings, metrics, Faults(settings.faults))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: relay.stop())
        with ExitStack() as stack:
            stack.callback(broker.close)
            if settings.metrics_bind:
                stack.enter_context(serve_metrics(settings.metrics_bind, registry, relay.reasons))
            relay.run()


def last_served(after: UUID, tenants: Sequence[UUID]) -> UUID:
    """Who came last in a full dispatch that began behind `after` and went round: the next one begins behind it.

    One entry of `tenants` a job. Tenants take turns, so those with the most jobs are the ones that the last turn reached.
    """
    counts = Counter(tenants)
    most = max(counts.values())
    return max((tenant for tenant, count in counts.items() if count == most), key=lambda t: (t <= after, t))
