"""From a wake-up to a finished job: claim, work, fenced commit, answer.

A wake-up is only a hint: the row decides. Whatever happens here, the row ends in a state with a way out: finished, parked
for another try, or running with a lease that the relay will see expire.
"""

import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from itertools import takewhile
from uuid import UUID

import redis
from dramatiq.middleware.threading import Interrupt

from core.clock import monotonic, now
from core.errors import DeadlineExceeded, LeaseLost
from core.faults import Faults
from core.jobs.model import Claim, Deferred, Done, Kind, Outcome
from core.records.service import KINDS as WRITES
from core.records.service import commit_writes
from core.settings import Settings
from core.store.database import Database
from workers.actors.work import Actor, Work
from workers.broker import WakeBroker
from workers.channels import RELAY, publish
from workers.endings import Endings
from workers.keeper import Keeper
from workers.metrics import WorkerMetrics

_log = logging.getLogger(__name__)

DRAIN_SECONDS = 0.02
"""How long one wake-up may go on with its tenant's ready jobs before other tenants' wake-ups get the thread."""
WRITE_JOBS = 500
WRITE_BYTES = 16 * 1024 * 1024
UNKNOWN_KIND_SECONDS = 60
NUDGE_SECONDS = 0.02


class Runner:
    """Does what wake-ups ask for; `handle` is called by many threads. `actors` and `kinds` say what this process can do."""

    def __init__(
        self,
        db: Database,
        broker: WakeBroker,
        settings: Settings,
        keeper: Keeper,
        metrics: WorkerMetrics,
        *,
        kinds: dict[str, Kind],
        actors: dict[str, Actor],
        faults: Faults | None = None,
    ) -> None:
        self._db = db
        self._broker = broker
        self._settings = settings
        self._keeper = keeper
        self._metrics = metrics
        self._kinds = kinds
        self._actors = actors
        self._faults = faults or Faults()
        self._stopping = threading.Event()
        self._endings = Endings(db, broker.client, metrics, self._faults, self._stopping)
        self._nudged: dict[str, float] = {}

    def stop(self) -> None:
        """From now on a wake-up does one claim and takes no more."""
        self._stopping.set()

    def release(self, claims: Sequence[Claim]) -> None:
        """Lets go of jobs that will not end in time."""
        self._endings.release(claims)

    def handle(self, tenant_id: UUID, job_id: UUID, queue: str) -> None:
        """Does the job that a wake-up names, then for a moment what else of its tenant is ready."""
        self._faults.hit("claim.before")
        writes = queue.startswith("write.")
        more = self._writes(tenant_id, job_id) if writes else self._jobs(tenant_id, job_id, queue)
        if more:
            self._nudge(queue)

    # -- writes: all of a store at once ---------------------------------------------------------------------------------

    def _writes(self, tenant_id: UUID, job_id: UUID) -> bool:
        """Takes a store's writes until none is left or the moment is over; answers whether some are."""
        until = monotonic() + DRAIN_SECONDS
        claims = self._claim_writes(tenant_id, None, job_id)
        while claims:
            store_id = claims[0].store_id
            if not self._commit(claims):
                return False
            if monotonic() > until or self._stopping.is_set():
                return True
            again = claims[0].attempt > 1
            claims = self._claim_writes(tenant_id, store_id, job_id)
            if again and not claims:
                return True  # what killed a worker together is let out by the relay, one by one
        return False

    def _claim_writes(self, tenant_id: UUID, store_id: UUID | None, job_id: UUID) -> list[Claim]:
        with self._db.direct() as tx:
            rows = tx.rows(
                "claim_writes",
                tenant=tenant_id,
                store=store_id,
                job=job_id,
                owner=self._keeper.owner,
                lease=self._settings.lease_seconds,
                limit=WRITE_JOBS,
                bytes=WRITE_BYTES,
            )
        self._faults.hit("claim.after")
        return [Claim(**row) for row in rows]

    def _commit(self, claims: Sequence[Claim]) -> bool:
        """One claim of writes to its end. False: it failed, and nothing behind it may go first."""
        known = list(takewhile(lambda claim: claim.kind in WRITES, claims))
        if len(known) < len(claims):
            # A kind of a newer version is parked; what is behind it waits with it, so that the order holds.
            self._endings.release(claims[len(known) + 1 :])
            self._endings.end(claims[len(known)], _unknown_kind(), 0.0)
            claims = known
        if not claims:
            return False
        began = monotonic()
        with self._keeper.hold(claims, max(self._kinds[claim.kind].run_seconds for claim in claims)):
            try:
                self._faults.hit("work.before")
                commit = commit_writes(self._db, claims, self._faults)
            except LeaseLost:
                self._metrics.lease_lost(claims[0].queue)
                return True
            except Interrupt as error:
                self._endings.retry_all(claims, DeadlineExceeded(f"{type(error).__name__}: the commit took too long"))
                return False
            except Exception as error:
                _log.exception("a claim of %d writes failed", len(claims))
                self._endings.retry_all(claims, error)
                return False
        took = monotonic() - began
        by_id = {claim.job_id: claim for claim in claims}
        self._endings.answer(commit.endings, commit.woken)
        for ending in commit.endings:
            self._endings.record(by_id[ending.job_id], ending.state, took / len(claims))
        return True

    # -- everything else: one by one, or a batch of a kind that says so ---------------------------------------------------

    def _jobs(self, tenant_id: UUID, job_id: UUID, queue: str) -> bool:
        until = monotonic() + DRAIN_SECONDS
        with self._db.direct() as tx:
            row = tx.row(
                "claim_job",
                tenant=tenant_id,
                job=job_id,
                owner=self._keeper.owner,
                lease=self._settings.lease_seconds,
            )
        self._faults.hit("claim.after")
        if row is None:
            return False
        claims = [Claim(**row)]
        kind = self._kinds.get(claims[0].kind)
        batch = 1 if kind is None else kind.batch
        if kind is not None and batch > 1:
            claims += self._claim_more(tenant_id, queue, kind, batch - 1)
        more = False
        while claims:
            more, claims = self._run(claims, kind, until)
        return more

    def _claim_more(self, tenant_id: UUID, queue: str, kind: Kind, limit: int) -> list[Claim]:
        with self._db.direct() as tx:
            rows = tx.rows(
                "claim_more",
                tenant=tenant_id,
                queue=queue,
                kind=kind.name,
                owner=self._keeper.owner,
                lease=self._settings.lease_seconds,
                limit=limit,
            )
        return [Claim(**row) for row in rows]

    def _run(self, claims: Sequence[Claim], kind: Kind | None, until: float) -> tuple[bool, list[Claim]]:
        """Works claims to their ends. Answers whether their tenant has more ready, and what of that it has claimed."""
        seconds = 60 if kind is None else kind.run_seconds
        more = False
        started = monotonic()
        with self._keeper.hold(claims, seconds) as hold:
            done: list[tuple[Claim, Done]] = []
            for claim in claims:
                if claim.seconds_left is not None:
                    hold.deadline = started + claim.seconds_left
                work = Work(claim, hold, self._db, self._settings, self._kinds, self._faults)
                began = monotonic()
                outcome = self._attempt(work)
                if isinstance(outcome, Done) and outcome.effects is None and kind is not None:
                    done.append((claim, outcome))
                    continue
                more = self._endings.end(claim, outcome, monotonic() - began) or more
            goes_on = kind is not None and monotonic() <= until and not self._stopping.is_set()
            if done and kind is not None:
                share = (monotonic() - started) / len(done)
                limit = kind.batch if goes_on else 0
                return self._endings.end_and_claim(
                    done, kind, self._keeper.owner, self._settings.lease_seconds, limit, share
                )
        if more and goes_on and kind is not None:
            return True, self._claim_more(claims[0].tenant_id, claims[0].queue, kind, kind.batch)
        return more, []

    def _attempt(self, work: Work) -> Outcome | BaseException:
        """One attempt of one job; errors are values here, so that each finds its way out of the row."""
        claim = work.claim
        if claim.expired:
            return DeadlineExceeded("the deadline passed before a worker could take the job")
        actor = self._actors.get(claim.kind)
        if actor is None:
            return _unknown_kind()
        try:
            self._faults.hit("work.before")
            outcome = actor(work)
            self._faults.hit("work.after")
        except Interrupt as error:
            return DeadlineExceeded(f"{type(error).__name__}: the work took too long")
        except Exception as error:
            return error
        return outcome

    def _nudge(self, queue: str) -> None:
        """Tells the relay that a tenant's slot is free and more is ready; at most once in a few milliseconds."""
        moment = monotonic()
        if moment - self._nudged.get(queue, 0.0) < NUDGE_SECONDS:
            return
        self._nudged[queue] = moment
        try:
            publish(self._broker.client, [(RELAY, queue)])
        except redis.RedisError:
            _log.debug("the relay was not nudged; it polls")


def _unknown_kind() -> Deferred:
    """Never an error: workers of a newer version may know it (failure-cases.md D9)."""
    return Deferred("unknown-kind", now() + timedelta(seconds=UNKNOWN_KIND_SECONDS))
