"""Who waits for which job in this process, and how they hear that it has ended (architecture.md §1, step 4).

A worker publishes the ending on this process's channel; small results travel in the message, larger ones are read from the
row. A slow poll of the rows covers lost messages and the times when Redis is down: the row is the truth.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from anyio import to_thread

from api.subscription import Subscription
from core import ids
from core.clock import monotonic
from core.errors import MunimentError
from core.jobs.model import Ending
from core.jsontext import dumps
from core.store.database import Database

CHANNEL = "muniment:answer:"
POLL_SECONDS = 1.0
"""Before a job's row is first looked at; each further look waits twice as long."""
POLL_LONGEST_SECONDS = 8.0
QUIET_SECONDS = 15.0
"""Without a message the connection is pinged, and given up when the next such time brings no answer either."""
CONNECT_SECONDS = 3.0
BACK_OFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)

_log = logging.getLogger(__name__)

Answer = asyncio.Future[Ending | None]
Value = TypeVar("Value")


@dataclass(slots=True)
class _Wait:
    tenant_id: UUID
    answer: Answer
    look_at: float
    interval: float


class Waiter:
    """One a process, used from its event loop only. `id` goes onto the rows of jobs that somebody here waits for."""

    def __init__(self, db: Database, redis_url: str | None, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.id = ids.token()[:16]
        self.listening = False
        """Whether answers can come by message at this moment."""
        self.stopping = asyncio.Event()
        self._db = db
        self._redis_url = redis_url
        self._poll_seconds = poll_seconds
        self._waits: dict[UUID, _Wait] = {}
        self._look = asyncio.Event()
        self._tried = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._lost = False

    def __len__(self) -> int:
        return len(self._waits)

    async def start(self) -> None:
        """Returns when answers can come by message, or when Redis cannot be reached at the first try."""
        self._tasks.append(asyncio.create_task(self._poll()))
        if self._redis_url:
            self._tasks.append(asyncio.create_task(self._listen(self._redis_url)))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._tried.wait(), CONNECT_SECONDS)

    async def stop(self) -> None:
        self.release()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    def release(self) -> None:
        """The process is about to stop: everybody who waits gets None, and so does whoever comes later."""
        self.stopping.set()
        for wait in self._waits.values():
            resolve(wait.answer, None)

    def register(self, tenant_id: UUID, job_id: UUID) -> Answer:
        """Call it before the job is accepted, or its answer may come too early; then `forget`, however it ends."""
        answer: Answer = asyncio.get_running_loop().create_future()
        if self.stopping.is_set():
            answer.set_result(None)
        self._waits[job_id] = _Wait(tenant_id, answer, monotonic() + self._poll_seconds, self._poll_seconds)
        return answer

    def forget(self, job_id: UUID) -> None:
        self._waits.pop(job_id, None)

    def nudge(self, job_id: UUID | None = None) -> None:
        """Look at the row of this job now; without one, at all that are waited for."""
        for wait in self._waits.values() if job_id is None else filter(None, [self._waits.get(job_id)]):
            wait.look_at = 0.0
            self._look.set()

    # Messages ---------------------------------------------------------------------------------------------------------

    async def _listen(self, url: str) -> None:
        failures = 0
        while True:
            try:
                subscription = await Subscription.open(url, CHANNEL + self.id, CONNECT_SECONDS, self._message)
                try:
                    await _watch(subscription)
                finally:
                    subscription.close()
            except Exception as error:  # whatever it is, the next try may work, and the poll goes on meanwhile
                if self.listening:
                    failures = 0
                if failures == 0:
                    _log.warning("answers: Redis is lost, rows are polled: %s: %s", type(error).__name__, error)
                self._lost = True
            finally:
                self.listening = False
                self._tried.set()
            await asyncio.sleep(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)])
            failures += 1

    def _message(self, kind: bytes, data: Any) -> None:
        if kind == b"message":
            self._heard(data)
        elif kind == b"subscribe":
            self.listening = True
            if self._lost:
                self._lost = False
                _log.warning("answers: Redis is back")
            self._tried.set()
            self.nudge()  # what was published before is lost

    def _heard(self, data: bytes) -> None:
        try:
            message = cast("dict[str, Any]", json.loads(data))
            job_id = UUID(message["job"])
            state = str(message["state"])
        except Exception as error:  # whatever was published: the next message may be one of ours
            _log.warning("answers: a message cannot be read: %s: %s", type(error).__name__, error)
            self.nudge()
            return
        wait = self._waits.get(job_id)
        if wait is None:
            return  # the client has gone, or was answered 202
        if message.get("large"):
            self.nudge(job_id)
            return
        result = message.get("result")
        ending = Ending(job_id, state, result=None if result is None else dumps(result), error=message.get("error"))
        resolve(wait.answer, ending)

    # Rows -------------------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            self._look.clear()
            now = monotonic()
            due: dict[UUID, list[UUID]] = defaultdict(list)
            for job_id, wait in self._waits.items():
                if wait.look_at <= now and not wait.answer.done():
                    wait.interval = min(wait.interval * 2, POLL_LONGEST_SECONDS)
                    wait.look_at = now + wait.interval
                    due[wait.tenant_id].append(job_id)
            for tenant_id, job_ids in due.items():
                await self._look_at(tenant_id, job_ids)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), self._poll_seconds / 2)

    async def _look_at(self, tenant_id: UUID, job_ids: list[UUID]) -> None:
        try:
            endings = await to_thread.run_sync(ended, self._db, tenant_id, job_ids)
        except MunimentError as error:
            _log.warning("answers: the rows cannot be read: %s: %s", type(error).__name__, error)
            return
        except Exception as error:  # the poll is the last resort of everybody who waits: it never ends
            _log.exception("answers: %s", type(error).__name__)
            return
        for ending in endings:
            wait = self._waits.get(ending.job_id)
            if wait is not None:
                resolve(wait.answer, ending)


async def _watch(subscription: Subscription) -> None:
    """Until the connection is lost; raises why. A ping that brings nothing for QUIET_SECONDS is a reason too."""
    since = subscription.heard_at
    pinged = False
    while True:
        await asyncio.wait((subscription.lost,), timeout=max(since + QUIET_SECONDS - monotonic(), 0))
        if subscription.lost.done():
            raise subscription.lost.result()
        if subscription.heard_at > since:
            since = subscription.heard_at
            pinged = False
        elif pinged:
            raise TimeoutError("no answer to a ping")
        else:
            subscription.ping()
            since = monotonic()
            pinged = True


def ended(db: Database, tenant_id: UUID, job_ids: Sequence[UUID]) -> list[Ending]:
    """Those of the jobs that have ended, from their rows. Synchronous."""
    with db.tenant(tenant_id) as tx:
        rows = tx.rows("ended_jobs", tenant=tenant_id, jobs=list(job_ids))
    return [Ending(row["job_id"], row["state"], result=row["result"], error=row["error"]) for row in rows]


def resolve(answer: "asyncio.Future[Value]", value: Value) -> None:
    """Unless somebody was first, or nobody waits any more."""
    if not answer.done():
        answer.set_result(value)
