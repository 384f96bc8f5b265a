"""How an attempt ends: the fenced commit, the retry, the answer to whoever waits."""

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import redis

from core.clock import now
from core.errors import DeadlineExceeded, JobFailed, LeaseLost, MunimentError, Unavailable
from core.faults import Faults
from core.jobs.model import Claim, Deferred, Done, Ending, Kind, Outcome, Waiting
from core.jobs.retry import delay
from core.jsontext import dumps
from core.store.database import Database, Row
from workers.channels import EVERY, RELAY, answers, publish
from workers.metrics import WorkerMetrics

_log = logging.getLogger(__name__)

TRIES = 3
CLAIMED = tuple(field.name for field in fields(Claim))
TRY_SECONDS = 0.5


class Endings:
    """Every method checks the lease token: a job that was taken over or cancelled keeps nothing of this attempt."""

    def __init__(
        self, db: Database, client: redis.Redis, metrics: WorkerMetrics, faults: Faults, stopping: threading.Event
    ) -> None:
        self._db = db
        self._client = client
        self._metrics = metrics
        self._faults = faults
        self._stopping = stopping

    def end(self, claim: Claim, outcome: Outcome | BaseException, took: float) -> bool:
        """Brings one job to its next state and answers whether its tenant has more ready.

        Tries a few times while Postgres is away, then raises Unavailable: the lease runs out and the relay sees to it."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._end(claim, outcome, took)
            except LeaseLost:
                _log.warning("job %s was taken over or cancelled: its work is discarded", claim.job_id)
                self._metrics.lease_lost(claim.queue)
                return False
            except Unavailable:
                if attempt == TRIES or self._stopping.wait(TRY_SECONDS * attempt):
                    raise
            except Exception as error:
                if isinstance(outcome, BaseException):
                    raise
                outcome = error  # its effects could not be written: that is how the attempt ended
        return False

    def end_and_claim(
        self, done: Sequence[tuple[Claim, Done]], kind: Kind, owner: str, lease: float, limit: int, took: float
    ) -> tuple[bool, list[Claim]]:
        """Ends jobs of one tenant that only have results and claims up to `limit` more of it, in one round trip.

        Answers whether more is ready, and the claims. Tries as `end` does."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._end_and_claim(done, kind, owner, lease, limit, took)
            except Unavailable:
                if attempt == TRIES or self._stopping.wait(TRY_SECONDS * attempt):
                    raise
        return False, []

    def _end_and_claim(
        self, done: Sequence[tuple[Claim, Done]], kind: Kind, owner: str, lease: float, limit: int, took: float
    ) -> tuple[bool, list[Claim]]:
        results = [None if outcome.result is None else dumps(outcome.result) for _, outcome in done]
        first = done[0][0]
        self._faults.hit("commit.begin")
        with self._db.direct() as tx:
            rows = tx.rows(
                "finish_and_claim",
                tenant=first.tenant_id,
                jobs=[claim.job_id for claim, _ in done],
                tokens=[claim.lease_token for claim, _ in done],
                results=results,
                queue=first.queue,
                kind=kind.name,
                owner=owner,
                lease=lease,
                limit=limit,
            )
            self._faults.hit("commit.before")
        self._faults.hit("commit.after")
        ended = {row["ended"]: row for row in rows if row["ended"] is not None}
        endings: list[Ending] = []
        for (claim, _), result in zip(done, results, strict=True):
            if claim.job_id in ended:
                endings.append(Ending(claim.job_id, "succeeded", claim.waiter, result=result))
            else:
                _log.warning("job %s was taken over or cancelled: its work is discarded", claim.job_id)
                self._metrics.lease_lost(claim.queue)
        self.answer(endings, {row["woken"] for row in ended.values() if row["woken"]})
        for claim, _ in done:
            if claim.job_id in ended:
                self.record(claim, "succeeded", took)
        claims = [Claim(**{name: row[name] for name in CLAIMED}) for row in rows if row["ended"] is None]
        return any(row["more"] for row in ended.values()), claims

    def retry_all(self, claims: Sequence[Claim], error: BaseException) -> None:
        """A claim of writes failed as a whole: each of its jobs is parked for another try."""
        for claim in claims:
            self.end(claim, error if not isinstance(error, MunimentError) else Unavailable(error.detail), 0.0)

    def release(self, claims: Sequence[Claim]) -> None:
        """Lets go of jobs that were claimed and not tried. One that is no longer ours is somebody else's business."""
        for claim in claims:
            with self._db.direct() as tx:
                tx.value("release_job", tenant=claim.tenant_id, job=claim.job_id, token=claim.lease_token)

    def _end(self, claim: Claim, outcome: Outcome | BaseException, took: float) -> bool:
        if isinstance(outcome, Done):
            result = None if outcome.result is None else dumps(outcome.result)
            row = self._commit(claim, outcome, result)
            self.answer([Ending(claim.job_id, "succeeded", claim.waiter, result=result)], _woken(row))
            self.record(claim, "succeeded", took)
            return bool(row["more"])
        if isinstance(outcome, Waiting):
            self._settle("wait_for_children", claim)
            self.answer([], [EVERY])  # its children are owed their wake-ups
            self.record(claim, "waiting", took)
            return False
        if isinstance(outcome, Deferred):
            self._settle("defer_job", claim, reason=outcome.reason, run_at=outcome.run_at)
            self.record(claim, "deferred", took)
            return False
        if isinstance(outcome, LeaseLost):
            raise outcome
        error = outcome if isinstance(outcome, MunimentError) else JobFailed(_named(outcome))
        if _is_final(claim, outcome):
            return self._fail(claim, error, took)
        self._retry(claim, error, took)
        return False

    def _commit(self, claim: Claim, outcome: Done, result: str | None) -> Row:
        """Effects and final state in one transaction, the lease token checked first."""
        effects = outcome.effects
        self._faults.hit("commit.begin")
        if effects is not None and self._faults.hit("commit.fence"):
            # A drill that takes the guarantee away: the effects are committed by themselves.
            with self._db.tenant(claim.tenant_id) as tx:
                effects(tx)
            self._faults.hit("commit.effects")
            effects = None
        with self._db.direct() if effects is None else self._db.tenant(claim.tenant_id) as tx:
            if effects is not None and outcome.locked is not None:
                tx.row("lock_store", tenant=claim.tenant_id, store=outcome.locked)
            row = tx.row("finish_job", **_ending(claim, "succeeded", result=result))
            if row is None or not row["ended"]:
                raise LeaseLost("the lease token is no longer the job's")
            if effects is not None:
                effects(tx)
            self._faults.hit("commit.before")
        self._faults.hit("commit.after")
        return row

    def _fail(self, claim: Claim, error: MunimentError, took: float) -> bool:
        """Ended for its own reason: never tried again by us."""
        problem = error.as_json()
        with self._db.direct() as tx:
            row = tx.row("finish_job", **_ending(claim, "failed", error=json.dumps(problem), reason=error.slug))
        if row is None or not row["ended"]:
            raise LeaseLost("the lease token is no longer the job's")
        self.answer([Ending(claim.job_id, "failed", claim.waiter, error=problem)], _woken(row))
        self.record(claim, "failed", took)
        return bool(row["more"])

    def _retry(self, claim: Claim, error: MunimentError, took: float) -> None:
        problem = error.as_json()
        with self._db.direct() as tx:
            state = tx.value(
                "retry_job",
                tenant=claim.tenant_id,
                job=claim.job_id,
                token=claim.lease_token,
                error=json.dumps(problem),
                delay=delay(claim.attempt),
            )
        if state is None:
            raise LeaseLost("the lease token is no longer the job's")
        if state == "dead":
            self.answer([Ending(claim.job_id, "dead", claim.waiter, error=JobFailed(error.detail).as_json())])
            self.record(claim, "dead", took)
        else:
            self._metrics.retried(claim.queue)

    def _settle(self, query: str, claim: Claim, **values: object) -> None:
        with self._db.direct() as tx:
            if not tx.value(query, tenant=claim.tenant_id, job=claim.job_id, token=claim.lease_token, **values):
                raise LeaseLost("the lease token is no longer the job's")

    def answer(self, endings: Sequence[Ending], nudges: Iterable[str] = ()) -> None:
        """Tells whoever waits, and the relay of queues with ready rows. What is lost costs latency only: both poll rows."""
        try:
            publish(self._client, [*answers(endings), *((RELAY, queue) for queue in nudges)])
        except redis.RedisError as error:
            _log.warning("answers could not be published: %s", error)

    def record(self, claim: Claim, outcome: str, took: float) -> None:
        waited = (now() - claim.created_at).total_seconds() - took
        self._metrics.finished(claim.queue, outcome, max(waited, 0.0), took)


def _ending(claim: Claim, state: str, **values: object) -> dict[str, Any]:
    ending = {"result": None, "error": None, "reason": None, **values}
    return {"tenant": claim.tenant_id, "job": claim.job_id, "token": claim.lease_token, "state": state, **ending}


def _woken(row: Row) -> list[str]:
    return [row["woken"]] if row["woken"] else []


def _is_final(claim: Claim, error: BaseException) -> bool:
    """A read's deadline is over for good; other work that was too slow, or met a fault, is tried again."""
    if isinstance(error, DeadlineExceeded):
        return claim.deadline_at is not None
    return isinstance(error, MunimentError) and not error.retryable


def _named(error: BaseException) -> str:
    """Never an empty text: the class is always named (failure-cases.md S41)."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
