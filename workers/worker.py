"""Runs a worker in this process: Dramatiq's threads, our wake-ups, one function that does the job.

Postgres owns attempts and retries, so whatever the function raises is logged and the wake-up is spent.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty
from threading import Event, Lock, Thread, get_ident
from typing import cast
from uuid import UUID

from dramatiq import Actor, MessageProxy
from dramatiq.worker import Worker, WorkerThread, _WorkQueueItem  # pyright: ignore[reportPrivateUsage]

from core import clock
from workers.broker import ACTOR, WakeBroker
from workers.consumer import WakeConsumer

_log = logging.getLogger(__name__)

Handle = Callable[[UUID, UUID, str], None]
"""Does one job: tenant, job, queue."""

THREAD_POLL_MS = 60_000  # idle threads sleep; a stop wakes them
BOOT_SECONDS = 10.0
CONSUMER_STOP_SECONDS = (
    15.0  # a consumer that Redis holds up for longer is left behind: its wake-ups come back by the sweep
)


@dataclass(frozen=True, slots=True)
class Status:
    """What a worker has done and how it is. `reasons` is empty when all is well; seconds by the monotonic clock."""

    reasons: tuple[str, ...]
    handled: int
    failed: int
    rejected: int
    running: int
    oldest_running_seconds: float
    idle_seconds: float

    @property
    def alive(self) -> bool:
        return not self.reasons


class _WatchedThread(WorkerThread):
    """Remembers why it ended; Dramatiq's just disappears (dramatiq issue 445)."""

    reason = ""

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:
            self.reason = f"{type(error).__name__}: {error}"
            _log.critical("a worker thread ended", exc_info=True)

    def process_message(self, message: MessageProxy | None) -> None:
        """None ends the thread; an idle one would see the stop only after its poll."""
        if message is None:
            self.running = False
        else:
            super().process_message(message)


def _join(threads: Iterable[Thread], seconds: float) -> None:
    """Wait for all of them, `seconds` in total."""
    deadline = clock.monotonic() + seconds
    for thread in threads:
        thread.join(timeout=max(deadline - clock.monotonic(), 0))


class PushedWorker(Worker):
    """Dramatiq's worker with prefetch = threads, no delay queues, and a stop that frees prefetched work at once."""

    def __init__(self, broker: WakeBroker, *, queues: set[str], threads: int) -> None:
        super().__init__(broker, queues=queues, worker_timeout=THREAD_POLL_MS, worker_threads=threads)
        self.queue_prefetch = threads

    def start(self) -> None:
        super().start()
        # Each thread marks itself running when it boots: a stop that came before would be forgotten.
        deadline, pause = clock.monotonic() + BOOT_SECONDS, Event()
        while not all(thread.running for thread in (*self.workers, *self.consumers.values())):
            if clock.monotonic() > deadline:
                raise RuntimeError("the worker's threads did not start")
            pause.wait(0.001)

    def stop(self, timeout: int = 600_000) -> None:
        """As Dramatiq's, but prefetched messages go back before the wait for running jobs, not after it."""
        self.broker.emit_before("worker_shutdown", self)
        for thread in self.workers:
            thread.stop()
        cast("WakeBroker", self.broker).draining = True
        for consumer in self.open_consumers():
            consumer.ring()
        self._give_back_prefetched()
        for _ in self.workers:
            self.work_queue.put(_WorkQueueItem(0, cast("MessageProxy", None)))
        # The consumers live on meanwhile: they acknowledge, and send the heartbeat that keeps others from taking over.
        _join(self.workers, timeout / 1_000)
        for thread in self.consumers.values():
            thread.stop()
        _join(self.consumers.values(), CONSUMER_STOP_SECONDS)
        self._give_back_prefetched()
        for thread in self.consumers.values():
            thread.close()
        self.broker.emit_after("worker_shutdown", self)

    def _give_back_prefetched(self) -> None:
        with suppress(Empty):
            while True:
                message = cast("MessageProxy | None", self.work_queue.get_nowait().message)
                if message is not None:
                    self.consumers[message.queue_name].requeue_messages([message])

    def _add_worker(self) -> None:
        thread = _WatchedThread(
            broker=self.broker, consumers=self.consumers, work_queue=self.work_queue, worker_timeout=self.worker_timeout
        )
        thread.start()
        self.workers.append(thread)

    def open_consumers(self) -> list[WakeConsumer]:
        return [cast("WakeConsumer", thread.consumer) for thread in self.consumers.values() if thread.consumer]

    def problems(self) -> list[str]:
        """Why this worker is not well: ended threads by cause, queues that cannot reach Redis."""
        found: list[str] = []
        ended = [thread for thread in self.workers if not thread.is_alive()]
        if ended:
            causes = sorted({cast("_WatchedThread", thread).reason or "stopped" for thread in ended})
            found.append(f"{len(ended)} of {len(self.workers)} worker threads ended: {'; '.join(causes)}")
        for queue, thread in self.consumers.items():
            consumer = cast("WakeConsumer | None", thread.consumer)
            if not thread.is_alive():
                found.append(f"the consumer of {queue} ended")
            elif consumer is None:
                found.append(f"the consumer of {queue} has not started")
            elif not consumer.connected:
                found.append(f"the consumer of {queue} cannot reach Redis: {consumer.problem}")
            elif consumer.deaf:
                found.append(f"wake-ups of {queue} are not heard: {consumer.deaf}")
        return found


class WakeWorker:
    """One worker process's work: call `start`, later `stop`, each once. The broker must be its own."""

    def __init__(self, broker: WakeBroker, queues: Sequence[str], threads: int, handle: Handle) -> None:
        self._handle = handle
        self._queues = frozenset(queues)
        self._lock = Lock()
        self._handled = self._failed = self._rejected = 0
        self._running: dict[int, float] = {}
        self._progress_at = clock.monotonic()
        for queue in queues:
            broker.declare_queue(queue)
        Actor(self._wake, broker=broker, actor_name=ACTOR, queue_name=queues[0], priority=0, options={})
        self._worker = PushedWorker(broker, queues=set(queues), threads=threads)

    def start(self) -> None:
        """Returns at once; `status` says when the consumers have reached Redis."""
        self._worker.start()

    def stop(self, timeout: float) -> bool:
        """Let running jobs end for at most `timeout` seconds; what was only prefetched goes back to its queue.

        False when jobs still ran: they go on until the process ends, and their leases fence what they write.
        """
        self._worker.stop(int(timeout * 1_000))
        return not any(thread.is_alive() for thread in self._worker.workers)

    def status(self) -> Status:
        """For readiness and for the log."""
        now = clock.monotonic()
        started = list(self._running.values())
        return Status(
            reasons=tuple(self._worker.problems()),
            handled=self._handled,
            failed=self._failed,
            rejected=self._rejected + sum(consumer.rejected for consumer in self._worker.open_consumers()),
            running=len(started),
            oldest_running_seconds=now - min(started, default=now),
            idle_seconds=now - self._progress_at,
        )

    def alive(self) -> bool:
        """All threads live and every queue's consumer reaches Redis; `status().reasons` says what is wrong."""
        return self.status().alive

    def _wake(self, *args: object) -> None:
        try:
            tenant_id, job_id, queue = self._parsed(args)
        except ValueError as error:
            _log.error("a wake-up with wrong arguments is dropped: %s", error)
            with self._lock:
                self._rejected += 1
            return
        self._running[get_ident()] = clock.monotonic()
        failed = False
        try:
            self._handle(tenant_id, job_id, queue)
        except Exception:
            failed = True
            _log.exception("job %s of %s raised out of its handler; the relay will send it again", job_id, queue)
        finally:
            self._running.pop(get_ident(), None)
            with self._lock:
                self._handled += 1
                self._failed += failed
                self._progress_at = clock.monotonic()

    def _parsed(self, args: tuple[object, ...]) -> tuple[UUID, UUID, str]:
        if len(args) != 3 or not all(isinstance(value, str) for value in args):
            raise ValueError("expected tenant, job and queue")
        tenant_id, job_id, queue = cast("tuple[str, str, str]", args)
        if queue not in self._queues:
            raise ValueError("not a queue of this worker")
        return UUID(tenant_id), UUID(job_id), queue
