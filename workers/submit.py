"""Accepting jobs: group commit, then wake-ups (prototype.md §2.5, hints 1 and 2).

One writer thread takes whatever waits, at most `accept_group` at once, and commits it by one server function. A lone
request loses nothing, since the writer never waits to fill a group; its worker is woken while the disk still writes, and
only the answer waits for that. While Redis answers quickly and nobody waits, the writer
also sends the wake-ups; else a second thread does, so that a slow Redis delays one accept at most before it is noticed. What
cannot be sent is handed to the relay.
"""

import json
import logging
import threading
from collections import deque
from concurrent.futures import Future
from uuid import UUID

import redis

from core.clock import monotonic
from core.errors import Deadlocked, MunimentError, Unavailable
from core.faults import Faults
from core.jobs.model import Accepted, JobRequest
from core.settings import Settings
from core.store.database import Database
from workers.broker import WakeBroker
from workers.channels import RELAY, publish
from workers.queues import BULK, lane_of

_log = logging.getLogger(__name__)

REDIS_SECONDS = 0.5
"""A wake-up that takes longer is the relay's: better late than in the way of the next accept."""
REDIS_PAUSE_SECONDS = 1.0
QUICK_SECONDS = 0.01
"""A Redis that took longer the last time is left to the sender's thread."""
SEND_BACKLOG = 10_000

Wake = tuple[str, UUID, UUID]


class Submitter:
    """`accept` may be called by any thread; the future resolves once the row is on disk."""

    def __init__(self, db: Database, redis_url: str, settings: Settings, faults: Faults | None = None) -> None:
        self._db = db
        self._group = settings.accept_group
        self._resend = settings.resend_seconds
        self._inflight = {"interactive": settings.inflight_interactive, BULK: settings.inflight_bulk}
        self._faults = faults or Faults()
        self._waiting: deque[tuple[JobRequest, Future[Accepted]]] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._sender = _Sender(db, redis_url, self._faults)
        self._writer = threading.Thread(target=self._write, name="submit-writer", daemon=True)

    def open(self) -> None:
        self._sender.start()
        self._writer.start()

    def close(self) -> None:
        """Commits what was handed in before, then stops."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._writer.join(timeout=30)
        self._sender.stop()

    def accept(self, request: JobRequest) -> "Future[Accepted]":
        """Resolves to how the request was received, or to Unavailable when Postgres could not say."""
        future: Future[Accepted] = Future()
        future.set_running_or_notify_cancel()  # a caller that goes away takes nothing back: the row is written
        with self._ready:
            if self._closing:
                raise Unavailable("this process is stopping")
            self._waiting.append((request, future))
            self._ready.notify()
        return future

    def redis_ok(self) -> bool:
        """Whether the last wake-up could be sent."""
        return self._sender.ok

    def _write(self) -> None:
        while True:
            with self._ready:
                while not self._waiting and not self._closing:
                    self._ready.wait()
                if not self._waiting:
                    return
                size = 1 if self._faults.hit("submit.group") else min(len(self._waiting), self._group)
                group = [self._waiting.popleft() for _ in range(size)]
            try:
                self._commit(group, lone=size == 1 and not self._waiting)
            except Exception as error:
                # This thread must live: what it leaves out the relay finds by its age.
                _log.exception("accepting met an error and goes on")
                for _, future in group:
                    if not future.done():
                        future.set_exception(Unavailable(f"{type(error).__name__}: {error}"))

    def _commit(self, group: list[tuple[JobRequest, "Future[Accepted]"]], *, lone: bool) -> None:
        # A lone request's row is seen by a worker before it is on disk: somebody may wait for that one job, and the disk
        # takes a fifth of the time. Under load the group's own commit is the cheaper way to the disk.
        try:
            accepted = self._accept([request for request, _ in group], "accept_jobs_soon" if lone else "accept_jobs")
        except Exception as error:
            if len(group) > 1 and (isinstance(error, Deadlocked) or not isinstance(error, Unavailable)):
                # One bad row must not fail its neighbours, nor two API processes that take the same keys each other.
                for entry in group:
                    self._commit([entry], lone=False)
                return
            for _, future in group:
                known = error if isinstance(error, MunimentError) else Unavailable(f"{type(error).__name__}: {error}")
                future.set_exception(known)
            return
        lost: Unavailable | None = None
        try:
            # Before the answers: whoever waits for a job has nothing else to do, and would only be in the way of its wake-up.
            self._wake(group, accepted)
        finally:
            if lone and accepted[0].outcome == "accepted":
                lost = self._lost_before_disk(group[0][0])
            for (_, future), outcome in zip(group, accepted, strict=True):
                if lost is None:
                    future.set_result(outcome)
                else:
                    future.set_exception(lost)

    def _lost_before_disk(self, request: JobRequest) -> Unavailable | None:
        """Waits until what was accepted survives a crash of Postgres; the error when it did not, or nobody can say."""
        try:
            if not self._faults.hit("submit.disk"):
                with self._db.direct() as tx:
                    if not tx.value("job_on_disk", tenant=request.tenant_id, job=request.job_id):
                        return Unavailable("Postgres crashed before the job was on disk")
        except Exception as error:
            return error if isinstance(error, Unavailable) else Unavailable(f"{type(error).__name__}: {error}")
        return None

    def _wake(self, group: list[tuple[JobRequest, "Future[Accepted]"]], accepted: list[Accepted]) -> None:
        self._faults.hit("submit.committed")
        self._sender.send(
            [
                (request.queue, request.tenant_id, request.job_id)
                for (request, _), outcome in zip(group, accepted, strict=True)
                if outcome.send
            ],
            {
                request.queue
                for (request, _), outcome in zip(group, accepted, strict=True)
                if outcome.outcome == "accepted" and not outcome.send
            },
            alone=not self._waiting,
        )

    def _accept(self, requests: list[JobRequest], query: str) -> list[Accepted]:
        self._faults.hit("submit.before")
        with self._db.direct() as tx:
            rows = tx.rows(
                query,
                requests=json.dumps([self._described(request) for request in requests]),
                payloads=[request.payload for request in requests],
                resend=self._resend,
            )
        return [
            Accepted(row["outcome"], row["job_id"], row["answered"], row["send"], row["created_at"]) for row in rows
        ]

    def _described(self, request: JobRequest) -> dict[str, object]:
        """What sql/functions/accept.sql reads of a request, besides its payload."""
        key = request.idempotency
        # A wake-up of a kind that works in batches is good for many jobs: fewer are needed.
        inflight = max(1, self._inflight[lane_of(request.queue)] // request.kind.batch)
        described: dict[str, object] = {
            "tenant": str(request.tenant_id),
            "job": str(request.job_id),
            "store": request.store,
            "kind": request.kind.name,
            "queue": request.queue,
            "document": request.document_id,
            "deadline": _deadline(request),
            "keep": request.kind.keep_seconds,
            "attempts": request.max_attempts,
            "waiter": request.waiter,
            "trace": request.trace,
            "inflight": inflight,
        }
        if key is not None:
            described |= {"route": key.route, "key": key.key, "body": key.body_sha256.hex(), "answered": key.answered}
        return described


def _deadline(request: JobRequest) -> int | None:
    """Only a kind that counts from acceptance has one on its row."""
    if not request.kind.from_accept:
        return None
    return request.deadline_seconds or request.kind.run_seconds


class _Sender:
    """Pushes wake-ups. While Redis is away it hands them to the relay instead, and tries again every second."""

    def __init__(self, db: Database, redis_url: str, faults: Faults) -> None:
        self._db = db
        self._broker = WakeBroker(redis_url, timeout=REDIS_SECONDS)
        self._faults = faults
        self._wakes: deque[Wake] = deque()
        self._nudges: set[str] = set()
        self._ready = threading.Condition()
        self._closing = False
        self._paused_until = 0.0
        self.ok = True
        self._quick = True
        self._thread = threading.Thread(target=self._run, name="submit-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join(timeout=30)
        self._broker.close()

    def send(self, wakes: list[Wake], nudges: set[str], *, alone: bool) -> None:
        """`alone`: nobody waits for the caller, who then pushes by itself while Redis is well: a change of thread less."""
        if not wakes and not nudges:
            return
        if alone and self.ok and self._quick and not self._wakes:
            self._push(wakes, nudges)
            return
        with self._ready:
            self._wakes.extend(wakes)
            self._nudges |= nudges
            self._ready.notify()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._wakes and not self._nudges and not self._closing:
                    self._ready.wait()
                if not self._wakes and not self._nudges:
                    return
                wakes = [self._wakes.popleft() for _ in range(min(len(self._wakes), SEND_BACKLOG))]
                nudges, self._nudges = self._nudges, set()
            try:
                self._push(wakes, nudges)
            except Exception:
                # This thread must live: the relay finds the unsent by their age.
                _log.exception("sending %d wake-ups met an error", len(wakes))

    def _push(self, wakes: list[Wake], nudges: set[str]) -> None:
        if monotonic() >= self._paused_until and not self._faults.hit("submit.wake"):
            began = monotonic()
            try:
                if wakes:
                    self._broker.send_many(wakes)
                publish(self._broker.client, [(RELAY, queue) for queue in sorted(nudges)])
            except redis.RedisError as error:
                _log.warning("Redis took no wake-ups, the relay will send them: %s", error)
                self._paused_until = monotonic() + REDIS_PAUSE_SECONDS
                self.ok = False
            else:
                if not self.ok:
                    _log.warning("Redis takes wake-ups again")
                self.ok = True
                self._quick = monotonic() - began < QUICK_SECONDS
                self._faults.hit("submit.sent")
                return
        if wakes:
            try:
                with self._db.direct() as tx:
                    tx.rows(
                        "unsend_jobs",
                        tenants=[tenant_id for _, tenant_id, _ in wakes],
                        jobs=[job_id for _, _, job_id in wakes],
                    )
            except MunimentError as error:
                _log.warning("the relay will find %d unsent wake-ups by their age: %s", len(wakes), error)
