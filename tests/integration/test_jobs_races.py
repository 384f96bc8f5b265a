"""Two transactions at once on the same jobs: each test holds one of them open and looks at what the other does."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from uuid import UUID

import psycopg
import pytest
import redis
from prometheus_client import CollectorRegistry
from psycopg.rows import DictRow, dict_row

from core.clock import monotonic
from core.errors import Deadlocked
from core.faults import Faults
from core.ids import uuid7
from core.search.lexical.writing import request_job
from core.settings import Settings
from core.store.database import Tx
from core.tenants.stores import store_id_of
from tests.conftest import TestDatabase
from tests.fakes.fleet import until
from tests.fakes.jobs import Jobs
from tests.rows import execute
from workers.actors.indexing import maintain_index
from workers.actors.work import Work
from workers.endings import Endings
from workers.keeper import Hold
from workers.metrics import WorkerMetrics


@pytest.fixture
def jobs(database: TestDatabase, tenant: UUID) -> Jobs:
    return Jobs(database, tenant)


@contextmanager
def open_transaction(jobs: Jobs) -> Generator[Tx]:
    """Of the jobs' tenant; committed at the end of the block."""
    with psycopg.Connection[DictRow].connect(jobs.database.dsn("app"), row_factory=dict_row) as connection:
        tx = Tx(connection)
        tx.run("set_tenant", tenant=str(jobs.tenant))
        yield tx


def waits(database: TestDatabase) -> bool:
    blocked = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return bool(execute(database.admin, blocked))


def test_a_cancelled_write_is_not_claimed_by_who_saw_it_before(database: TestDatabase, jobs: Jobs) -> None:
    first, second = (jobs.accept("write", "write.interactive") for _ in range(2))
    with open_transaction(jobs) as tx:
        tx.value("cancel_job", tenant=jobs.tenant, job=first)
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(jobs.claim_writes, first)
            until(lambda: waits(database))
            tx._connection.commit()  # pyright: ignore[reportPrivateUsage]
            assert [claim.job_id for claim in future.result(10)] == [second]
    assert jobs.row(first)["state"] == "cancelled"


def test_two_claims_of_a_store_wait_for_each_other(database: TestDatabase, jobs: Jobs) -> None:
    job = jobs.accept("write", "write.interactive")
    with open_transaction(jobs) as tx:
        values = {"tenant": jobs.tenant, "store": None, "job": job, "owner": "a", "lease": 30, "limit": 9, "bytes": 999}
        assert len(tx.rows("claim_writes", **values)) == 1
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(jobs.claim_writes, job)
            until(lambda: waits(database))
            tx._connection.commit()  # pyright: ignore[reportPrivateUsage]
            assert future.result(10) == []


def test_a_renewal_waits_for_nobody(database: TestDatabase, jobs: Jobs) -> None:
    held, other = (jobs.claim(jobs.accept()) for _ in range(2))
    assert held is not None
    assert other is not None
    with open_transaction(jobs) as tx:
        tx.rows("lock_running", tenant=jobs.tenant, token=held.lease_token, jobs=[held.job_id])
        assert jobs.renew([held, other]) == {other.job_id}
    assert jobs.renew([held, other]) == {held.job_id, other.job_id}


def test_the_sweep_waits_for_nobody(database: TestDatabase, jobs: Jobs) -> None:
    parent = jobs.claim(jobs.accept())
    assert parent is not None
    child, free = *jobs.add_children(parent, 1), jobs.accept()
    execute(database.admin, "update jobs set max_attempts = 1 where job_id = %s", child)
    assert jobs.claim(child)
    assert jobs.claim(free)
    jobs.run_out(child)
    jobs.run_out(free)
    with open_transaction(jobs) as tx:
        tx.rows("lock_running", tenant=jobs.tenant, token=parent.lease_token, jobs=[parent.job_id])
        assert jobs.sweep() == {free: "lease-lost"}
    assert jobs.sweep() == {child: "dead"}
    assert jobs.row(parent.job_id)["open_children"] == 0


def test_ending_a_child_and_cancelling_its_parent_do_not_deadlock(database: TestDatabase, jobs: Jobs) -> None:
    parent = jobs.claim(jobs.accept())
    assert parent is not None
    child = jobs.claim(jobs.add_children(parent, 1)[0])
    assert child is not None
    with open_transaction(jobs) as tx:
        # The first statement of a fenced commit: it holds the child, and comes for the parent later.
        tx.rows("lock_running", tenant=jobs.tenant, token=child.lease_token, jobs=[child.job_id])
        with ThreadPoolExecutor(1) as pool:
            cancel = pool.submit(jobs.cancel, parent.job_id)
            until(lambda: waits(database))
            row = tx.row(
                "finish_job", tenant=jobs.tenant, job=child.job_id, token=child.lease_token, state="succeeded", result=None,
                error=None, reason=None,
            )  # fmt: skip
            assert row is not None
            assert row["ended"]
            tx._connection.commit()  # pyright: ignore[reportPrivateUsage]
            assert cancel.result(10) == "ended"
    assert sorted(jobs.states().values()) == ["cancelled", "succeeded"]


def test_a_job_parked_while_the_relay_picks_it_keeps_its_delay(database: TestDatabase, jobs: Jobs) -> None:
    job = jobs.accept(inflight=0)
    claim = jobs.claim(job)
    assert claim is not None
    execute(database.admin, "update jobs set state = 'queued', sent_at = null where job_id = %s", job)
    with psycopg.connect(database.admin) as holder:
        holder.execute(
            "update jobs set run_at = now() + interval '5 s', due_at = now() + interval '5 s' where job_id = %s", [job]
        )
        with ThreadPoolExecutor(1) as pool:
            dispatch = pool.submit(jobs.dispatch)
            until(lambda: waits(database))
            holder.commit()
            assert dispatch.result(10) == []
    row = jobs.row(job)
    assert row["due_at"] == row["run_at"]


def test_s36_crossing_idempotency_keys_cost_nobody_an_answer(database: TestDatabase, jobs: Jobs) -> None:
    """Two API processes accept groups that hold each other's keys in the opposite order."""
    keys = [(f"k{n}", b"body") for n in range(2)]
    with open_transaction(jobs) as tx, ThreadPoolExecutor(1) as pool:
        assert _use(tx, jobs, keys[0])
        other = pool.submit(lambda: _both(database, jobs, keys))
        until(lambda: waits(database))
        try:
            _use(tx, jobs, keys[1])
            tx._connection.commit()  # pyright: ignore[reportPrivateUsage]
        except psycopg.errors.DeadlockDetected:
            tx._connection.rollback()  # pyright: ignore[reportPrivateUsage]
        error = other.exception(10)
        assert error is None or isinstance(error, Deadlocked), error


def _use(tx: Tx, jobs: Jobs, key: tuple[str, bytes]) -> bool:
    names = {"tenant": jobs.tenant, "route": "test", "key": key[0], "hash": key[1], "job": uuid7()}
    return bool(tx.rows("use_key", **names))


def _both(database: TestDatabase, jobs: Jobs, keys: list[tuple[str, bytes]]) -> None:
    with database.app.tenant(jobs.tenant) as tx:
        for key in reversed(keys):
            _use(tx, jobs, key)


def test_an_erasure_of_a_store_and_a_child_that_ends_do_not_deadlock(database: TestDatabase, jobs: Jobs) -> None:
    """Whoever ends a child locks it and then its parent. The erasure ends both, and so has to take them in that order."""
    parent = jobs.claim(jobs.accept("parent", store="journal"))
    assert parent is not None
    children = jobs.add_children(parent, 3)
    last = jobs.claim(children[2])
    assert last is not None
    assert last.store_id is not None

    def erase() -> int:
        with database.app.tenant(jobs.tenant) as tx:
            return tx.run("end_jobs_of_store", tenant=jobs.tenant, store=last.store_id, jobs=[])

    with ThreadPoolExecutor(1) as pool:
        with open_transaction(jobs) as tx:
            tx.rows("lock_running", tenant=jobs.tenant, token=last.lease_token, jobs=[last.job_id])
            future = pool.submit(erase)
            until(lambda: waits(database))
            ended = tx.row(
                "finish_job", tenant=jobs.tenant, job=last.job_id, token=last.lease_token, state="succeeded", result="{}",
                error=None, reason=None,
            )  # fmt: skip
            assert ended is not None
            assert ended["ended"]
        assert future.result(10) == 3
    assert sorted(jobs.states().values()) == ["failed", "failed", "failed", "succeeded"]


def test_an_erasure_of_a_store_and_the_end_of_its_index_job_do_not_deadlock(
    database: TestDatabase, redis_url: str, jobs: Jobs
) -> None:
    """The erasure locks the store and then its jobs. The end of an index job changes the store, too."""
    with database.app.tenant(jobs.tenant) as tx:
        store = store_id_of(tx, jobs.tenant, "journal")
        asked = request_job(tx, jobs.tenant, store)
    assert asked is not None
    claim = jobs.claim(asked)
    assert claim is not None
    hold = Hold([claim], thread_id=0, deadline=monotonic() + 60, trusted_until=monotonic() + 60)
    done = maintain_index(Work(claim, hold, database.app, Settings(), {}, Faults()))
    with redis.Redis.from_url(redis_url, socket_timeout=5) as client, ThreadPoolExecutor(1) as pool:
        endings = Endings(database.app, client, WorkerMetrics(CollectorRegistry()), Faults(), Event())
        with open_transaction(jobs) as tx:
            tx.row("lock_store", tenant=jobs.tenant, store=store)
            future = pool.submit(endings.end, claim, done, 0.0)
            until(lambda: waits(database))
            assert tx.run("end_jobs_of_store", tenant=jobs.tenant, store=store, jobs=[]) == 1
        assert future.result(10) is False
    assert (jobs.row(asked)["state"], jobs.row(asked)["reason"]) == ("failed", "store-erased")
