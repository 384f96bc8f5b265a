"""The job states against real Postgres: any order of accepts, claims, endings, kills, lost wake-ups and sweeps."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from core.jobs.model import TERMINAL, Claim
from core.tenants.stores import put_store
from tests.conftest import TestDatabase
from tests.fakes.jobs import EMBED, WRITE, Jobs
from tests.rows import execute

STATES = TERMINAL | {"queued", "running", "waiting", "deferred"}
MAX_CRASHES = 3
QUEUES = (EMBED, WRITE, "write.bulk", "read.interactive")
ROUNDS = 60

Rows = dict[UUID, dict[str, Any]]
pick = st.integers(min_value=0, max_value=10_000)


def is_write(row: dict[str, Any]) -> bool:
    return row["queue"].startswith("write.")


class JobMachine(RuleBasedStateMachine):
    """Several workers, each with its claims; a claim is kept after it was lost, and used again (a paused process)."""

    def __init__(self, database: TestDatabase, tenant: UUID) -> None:
        super().__init__()
        self.jobs = Jobs(database, tenant)
        self.claims: list[list[Claim]] = []
        self.before: Rows = {}
        self.finishes: dict[UUID, int] = {}
        self.lives: dict[UUID, int] = {}

    @initialize()
    def begin(self) -> None:
        execute(self.jobs.database.admin, "truncate jobs, job_payloads, job_results, idempotency_keys")
        self.before = {}

    # -- helpers --------------------------------------------------------------------------------------------------------

    def some(self, n: int, states: Iterable[str] | None = None) -> UUID | None:
        found = [job for job, row in self.before.items() if states is None or row["state"] in states]
        return found[n % len(found)] if found else None

    def claim(self, n: int) -> list[Claim]:
        """Mostly a recent one; often one whose job is by now in the hands of somebody else."""
        lost = [
            claims for claims in self.claims
            if self.before[claims[0].job_id]["state"] == "running" and not self.current(claims[0])
        ]  # fmt: skip
        return lost[n % len(lost)] if lost and n % 2 else self.claims[-1 - (n % min(len(self.claims), 6))]

    def current(self, claim: Claim) -> bool:
        row = self.before[claim.job_id]
        return row["state"] == "running" and row["lease_token"] == claim.lease_token

    def finished(self, jobs: Iterable[UUID]) -> None:
        for job in jobs:
            self.finishes[job] = self.finishes.get(job, 0) + 1

    # -- clients --------------------------------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        store=st.sampled_from(["journal", "journal", "other"]),
        attempts=st.integers(1, 3),
        count=st.integers(1, 3),
    )
    def accept(self, queue: str, store: str, attempts: int, count: int) -> None:
        deadline = 45 if queue.startswith("read.") else None
        store_name = store if queue.startswith("write.") else None
        for _ in range(count):
            self.jobs.accept("counter", queue, store=store_name, deadline=deadline, max_attempts=attempts, inflight=2)

    @rule(n=pick, how=st.sampled_from(["cancel", "revive", "unsend"]))
    def disturb(self, n: int, how: str) -> None:
        job = self.some(n, {"revive": {"dead"}, "unsend": {"queued"}}.get(how)) or self.some(n)
        if job is None:
            return
        was = self.before[job]["state"]
        if how == "cancel":
            assert self.jobs.cancel(job) == (was if was in TERMINAL else "ended")
        elif how == "revive":
            assert self.jobs.revive(job) == ("queued" if was == "dead" else was)
            self.lives[job] = self.lives.get(job, 1) + (was == "dead")
        else:
            self.jobs.unsend([job])

    # -- workers --------------------------------------------------------------------------------------------------------

    @rule(n=pick, limit=st.integers(1, 4))
    def take(self, n: int, limit: int) -> None:
        again = [job for job, row in self.before.items() if row["state"] == "queued" and row["crashes"]]
        job = again[n % len(again)] if again and n % 2 else self.some(n, {"queued"} if n % 5 else None)
        if job is None:
            return
        row = self.before[job]
        if is_write(row):
            self.take_writes(row, limit)
        elif n % 3:
            claim = self.jobs.claim(job)
            let_out = row["crashes"] < 2 or row["sent_at"] is not None
            assert (claim is not None) == (row["state"] == "queued" and row["run_at"] is None and let_out)
            if claim is not None:
                assert claim.attempt == row["attempt"] + 1
                self.claims.append([claim])
        else:
            claims = self.jobs.claim_more(EMBED, "counter", limit)
            assert len(claims) <= limit
            assert all(self.before[claim.job_id]["sent_at"] is None for claim in claims)
            self.claims += [[claim] for claim in claims]

    def take_writes(self, row: dict[str, Any], limit: int) -> None:
        store = row["store_id"]
        line = [
            row for row in self.before.values()
            if row["store_id"] == store and is_write(row) and row["state"] not in TERMINAL
        ]  # fmt: skip
        claims = self.jobs.claim_writes(row["job_id"], store, limit)
        taken = [claim.job_id for claim in claims]
        assert taken == [row["job_id"] for row in line[: len(taken)]], "not the head of the line"
        assert len(taken) <= limit
        if line and (line[0]["state"] != "queued" or line[0]["run_at"] is not None):
            assert not taken, "a write overtook one that is parked or at work"
        elif line and not (line[0]["crashes"] > 1 and line[0]["sent_at"] is None):
            assert taken, "nothing was taken although the head is ready"
        assert not any(self.before[one]["crashes"] > 1 and not self.before[one]["sent_at"] for one in taken), (
            "not let out"
        )
        if len(taken) > 1:
            assert all(self.before[one]["attempt"] == 0 for one in taken), "tried before, and not alone"
        if claims:
            self.claims.append(claims)

    @precondition(lambda self: self.claims)
    @rule(
        n=pick, how=st.sampled_from(["finish", "finish", "fail", "retry", "retry", "defer", "release", "wait", "renew"])
    )
    def end(self, n: int, how: str) -> None:
        claims = self.claim(n)
        mine = [claim for claim in claims if self.current(claim)]
        if how == "renew":
            assert self.jobs.renew(claims) == {claim.job_id for claim in mine}
        elif how == "finish" and len(claims) > 1:
            ended = self.jobs.finish_all(claims)
            assert ended == {claim.job_id for claim in mine}
            self.finished(ended)
        elif not (how == "wait" and is_write(self.before[claims[0].job_id])):
            for claim in claims:
                self.end_one(claim, how)

    def end_one(self, claim: Claim, how: str) -> None:
        current = self.current(claim)
        before = self.before[claim.job_id]["attempt"]
        if how in {"finish", "fail"}:
            assert self.jobs.finish(claim, "succeeded" if how == "finish" else "failed") == current
            self.finished([claim.job_id] if current else [])
        elif how == "retry":
            state = self.jobs.retry(claim)
            expected = "queued" if claim.attempt < claim.max_attempts else "dead"
            assert state == (expected if current else None)
            self.finished([claim.job_id] if state == "dead" else [])
        else:
            assert getattr(self.jobs, how)(claim) == current
            assert self.jobs.row(claim.job_id)["attempt"] == before - current, "it cost an attempt"

    @precondition(lambda self: self.claims)
    @rule(n=pick, count=st.integers(1, 3), then=st.sampled_from(["work", "wait", "wait"]))
    def add_children(self, n: int, count: int, then: str) -> None:
        claim = self.claim(n)[0]
        if is_write(self.before[claim.job_id]):
            return
        current = self.current(claim)
        assert len(self.jobs.add_children(claim, count)) == (count if current else 0)
        if then == "wait":
            assert self.jobs.wait(claim) == current

    # -- relay, Redis and time ------------------------------------------------------------------------------------------

    @rule(queue=st.sampled_from(QUEUES), inflight=st.integers(1, 3))
    def dispatch(self, queue: str, inflight: int) -> None:
        sent = self.jobs.dispatch(queue, inflight)
        open_rows = [row for row in self.before.values() if row["queue"] == queue and row["state"] not in TERMINAL]
        out = [row for row in open_rows if row["sent_at"]]
        for job in sent:
            row = self.before[job]
            assert (row["queue"], row["state"], row["sent_at"], row["run_at"]) == (queue, "queued", None, None)
        suspects = [job for job in sent if self.before[job]["crashes"] > 1]
        assert len(suspects) <= (not any(row["crashes"] > 1 for row in out)), (
            "two jobs that killed a worker are out at once"
        )
        if not queue.startswith("write."):
            assert len(sent) - len(suspects) <= max(inflight - len(out), 0)

    @rule(n=pick, how=st.sampled_from(["one", "one", "all", "deadline"]), sweep=st.integers(0, 20))
    def time_passes(self, n: int, how: str, sweep: int) -> None:
        job = (self.some(n, {"running"}) if n % 2 else None) or self.some(n, STATES - TERMINAL)
        if job and how == "one":
            self.jobs.run_out(job)
        elif job and how == "deadline" and self.before[job]["deadline_at"]:
            execute(
                self.jobs.database.admin,
                "update jobs set deadline_at = now() - interval '1 s', due_at = case when state = 'running' then due_at "
                "else now() - interval '1 s' end where job_id = %s",
                job,
            )
        elif how == "all":
            for job in [job for job, row in self.before.items() if row["state"] not in TERMINAL]:
                self.jobs.run_out(job)
        if sweep:
            swept = self.jobs.sweep(sweep, MAX_CRASHES)
            assert len(swept) <= sweep
            self.finished(job for job, reason in swept.items() if reason in {"dead", "deadline"})

    # -- what always holds ----------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        rows = self.jobs.rows()
        claims_of_store: dict[UUID, set[UUID]] = {}
        for job, row in rows.items():
            self.check(row)
            if is_write(row) and row["state"] == "running":
                claims_of_store.setdefault(row["store_id"], set()).add(row["lease_token"])
            old = self.before.get(job)
            if old and old["state"] in TERMINAL and row["state"] in TERMINAL:
                assert old == row, "a finished row changed"
            if row["state"] not in TERMINAL:
                open_children = [r for r in rows.values() if r["parent_id"] == job and r["state"] not in TERMINAL]
                assert row["open_children"] == len(open_children)
        assert all(len(tokens) == 1 for tokens in claims_of_store.values()), "two claims on one store"
        assert set(self.before) <= set(rows), "a job disappeared"
        for job, times in self.finishes.items():
            assert times <= self.lives.get(job, 1), "finished twice"
        self.before = rows

    def check(self, row: dict[str, Any]) -> None:
        state = row["state"]
        assert state in STATES
        assert (row["finished_at"] is not None) == (state in TERMINAL)
        assert (row["lease_token"] is not None) == (state == "running")
        assert 0 <= row["attempt"] <= row["max_attempts"]
        assert 0 <= row["crashes"] <= MAX_CRASHES
        if state == "running":
            assert row["due_at"]
            assert row["sent_at"]
            assert row["run_at"] is None
            assert row["attempt"] >= 1
        if state in TERMINAL:
            assert row["due_at"]
        elif row["due_at"] is None:
            sendable = state == "queued" and row["sent_at"] is None and row["run_at"] is None
            assert sendable, f"nothing will ever look at this row again: {row}"

    def teardown(self) -> None:
        """Whatever came before: when time passes and workers work, every job ends."""
        self.jobs.owner = "worker-2"
        unfinished: list[dict[str, Any]] = []
        for _ in range(ROUNDS):
            unfinished = [row for row in self.jobs.rows().values() if row["state"] not in TERMINAL]
            if not unfinished:
                return
            for row in unfinished:
                self.jobs.run_out(row["job_id"])
            self.jobs.sweep(1_000, MAX_CRASHES)
            for queue in QUEUES:
                for job in self.jobs.dispatch(queue, 100):
                    claim = None if queue.startswith("write.") else self.jobs.claim(job)
                    if claim is not None:
                        assert self.jobs.finish(claim)
                    for claim in self.jobs.claim_writes(job) if queue.startswith("write.") else []:
                        assert self.jobs.finish(claim)
        pytest.fail(f"never ended: {unfinished}")


def run_machine(database: TestDatabase, tenant: UUID, examples: int = 25, **more: Any) -> None:
    with database.relay.system() as tx:
        put_store(tx, tenant, "other", None)
    checks: Any = list(HealthCheck)
    machine: Any = lambda: JobMachine(database, tenant)  # noqa: E731
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=checks, **more
        ),
    )  # fmt: skip


def test_no_order_of_events_breaks_a_job(database: TestDatabase, tenant: UUID) -> None:
    run_machine(database, tenant)


def test_the_machine_sees_a_broken_guarantee(database: TestDatabase, tenant: UUID) -> None:
    """The negative control: without the check of the token the same machine fails."""
    with psycopg.connect(database.admin, autocommit=True) as admin:
        for name in ("end_job", "retry_job", "defer_job", "release_job", "wait_for_children"):
            row = admin.execute("select pg_get_functiondef(%s::regproc)", [name]).fetchone()
            assert row is not None
            broken = row[0].replace("and j.lease_token = p_token ", "")
            assert broken != row[0]
            admin.execute(broken.encode())
    with pytest.raises(AssertionError):
        run_machine(database, tenant, examples=200, derandomize=True, phases=(Phase.generate,))
