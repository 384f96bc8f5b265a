"""Keeps a worker's claims alive: renews leases, ends what overran its time, and reports the process.

One thread a process. A lease is trusted only from the moment its renewal *started*, so a slow answer cannot lengthen it;
correctness never rests on that trust, since every commit checks the token.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dramatiq.middleware import threading as dramatiq_threading
from dramatiq.middleware.time_limit import TimeLimitExceeded

from core.clock import monotonic, now
from core.errors import MunimentError
from core.ids import uuid7
from core.jobs.model import Claim
from core.settings import Settings
from core.store.database import Database

_log = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
"""The time limit is the job's deadline plus this (contract.md): a last resort, since it cannot end a blocking call."""
TICK_SECONDS = 1.0
WEDGED_SECONDS = 10.0
"""A thread that still runs so long after it was interrupted sits in a call that nothing ends."""


@dataclass
class Hold:
    """Claims under work by one thread. `lost` is set once the lease can no longer be trusted."""

    claims: Sequence[Claim]
    thread_id: int
    deadline: float
    trusted_until: float
    lost: bool = False
    interrupted_at: float | None = None


class Keeper:
    """`with keeper.hold(claims, seconds) as hold:` around the work of one claim."""

    def __init__(
        self,
        db: Database,
        settings: Settings,
        *,
        role: str,
        queues: Sequence[str],
        done: Callable[[], int],
        on_lost: Callable[[str], None] = lambda queue: None,
    ) -> None:
        self.process_id = uuid7()
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{self.process_id.hex[-8:]}"
        self._db = db
        self._settings = settings
        self._role = role
        self._queues = list(queues)
        self._done = done
        self._on_lost = on_lost
        self._holds: dict[int, Hold] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)
        try:
            with self._db.system() as tx:
                tx.run("forget_process", process=self.process_id)
        except MunimentError:
            _log.info("the process could not sign off; its row expires by itself")

    def alive(self) -> bool:
        return self._thread.is_alive()

    def hold(self, claims: Sequence[Claim], seconds: float) -> "_Holding":
        """Watches the claims until the block ends; `seconds` from now the work should be done."""
        began = monotonic()
        hold = Hold(claims, threading.get_ident(), began + seconds, began + self._settings.lease_seconds)
        return _Holding(self, hold)

    def add(self, hold: Hold) -> None:
        with self._lock:
            self._holds[id(hold)] = hold

    def remove(self, hold: Hold) -> None:
        with self._lock:
            self._holds.pop(id(hold), None)

    def held(self) -> list[Claim]:
        """What is under work at this moment, without what overran its time: that counts as a crash of its worker."""
        return [claim for hold in self._snapshot() if hold.interrupted_at is None for claim in hold.claims]

    def wedged(self) -> list[str]:
        """The jobs whose thread did not end when it was interrupted: it is lost to this process."""
        until = monotonic() - WEDGED_SECONDS
        return [
            str(hold.claims[0].job_id)
            for hold in self._snapshot()
            if hold.interrupted_at is not None and hold.interrupted_at < until
        ]

    def _run(self) -> None:
        renew_at = report_at = 0.0
        while not self._stopping.wait(TICK_SECONDS):
            moment = monotonic()
            try:
                self._interrupt(moment)
                if moment >= renew_at:
                    # A row that was locked in passing is tried again at the next tick.
                    renew_at = moment + (self._settings.renew_seconds if self._renew(moment) else TICK_SECONDS)
                if moment >= report_at:
                    report_at = moment + self._settings.renew_seconds
                    self._report()
            except MunimentError as error:
                _log.warning("leases could not be renewed: %s", error)
                renew_at = report_at = 0.0
            except Exception:
                _log.exception("the keeper met an error and goes on")

    def _snapshot(self) -> list[Hold]:
        with self._lock:
            return list(self._holds.values())

    def _interrupt(self, moment: float) -> None:
        for hold in self._snapshot():
            if moment > hold.trusted_until and not hold.lost:
                hold.lost = True
                self._on_lost(hold.claims[0].queue)
            if moment <= hold.deadline + GRACE_SECONDS or hold.interrupted_at is not None:
                continue
            with self._lock:
                if id(hold) in self._holds:
                    hold.interrupted_at = moment
                    _log.error("job %s overran its time limit", hold.claims[0].job_id)
                    threads: Any = dramatiq_threading  # it has no types
                    threads.raise_thread_exception(hold.thread_id, TimeLimitExceeded)

    def _renew(self, began: float) -> bool:
        """Whether every lease was renewed."""
        # What overran its time and does not end keeps its thread, but not its lease: the sweep gives the job to others.
        held = [(hold, claim) for hold in self._snapshot() if hold.interrupted_at is None for claim in hold.claims]
        if not held:
            return True
        with self._db.direct() as tx:
            rows = tx.rows(
                "renew_jobs",
                tenants=[claim.tenant_id for _, claim in held],
                tokens=[claim.lease_token for _, claim in held],
                jobs=[claim.job_id for _, claim in held],
                lease=self._settings.lease_seconds,
            )
        ours: set[UUID] = {row["job_id"] for row in rows}
        for hold, claim in held:
            if claim.job_id in ours:
                hold.trusted_until = began + self._settings.lease_seconds
        return len(ours) == len(held)

    def _report(self) -> None:
        with self._db.system() as tx:
            tx.run(
                "report_process",
                process=self.process_id,
                role=self._role,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=self._queues,
                keys=self._settings.keys_held(),
                jobs_done=self._done(),
                clock=now(),
            )


class _Holding:
    def __init__(self, keeper: Keeper, hold: Hold) -> None:
        self._keeper = keeper
        self._hold = hold

    def __enter__(self) -> Hold:
        self._keeper.add(self._hold)
        return self._hold

    def __exit__(self, *_: object) -> None:
        self._keeper.remove(self._hold)
