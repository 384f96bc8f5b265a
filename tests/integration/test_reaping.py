"""What a worker held that is known to be dead: it goes to others as any lost lease does, and nothing else is touched."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest

from core.clock import now
from core.errors import Unavailable
from core.ids import uuid7
from tests.conftest import TestDatabase
from tests.fakes.fleet import fleet, until
from tests.fakes.jobs import Jobs, effects, install_effects
from tests.rows import execute


@dataclass
class Worker:
    """A process that has signed in, and the jobs it claims."""

    jobs: Jobs
    id: UUID


@pytest.fixture
def jobs(database: TestDatabase, tenant: UUID) -> Jobs:
    return Jobs(database, tenant)


def sign_in(database: TestDatabase, tenant: UUID, pid: int) -> Worker:
    worker = Worker(Jobs(database, tenant), uuid7())
    worker.jobs.owner = f"{socket.gethostname()}:{pid}:{worker.id.hex[-8:]}"
    with database.app.system() as tx:
        tx.run(
            "report_process", process=worker.id, role="worker-fast", host=socket.gethostname(), pid=pid, queues=[], keys=None,
            jobs_done=0, clock=now(),
        )  # fmt: skip
    return worker


def reap(database: TestDatabase, process: UUID) -> int:
    with database.relay.direct() as tx:
        return tx.value("reap_process", process=process)


def test_the_claims_of_a_dead_process_count_as_crashes_at_the_next_sweep(database: TestDatabase, tenant: UUID) -> None:
    dead, alive = sign_in(database, tenant, 11), sign_in(database, tenant, 12)
    mine, others, waiting = (dead.jobs.accept() for _ in range(3))
    claim, other = dead.jobs.claim(mine), alive.jobs.claim(others)
    assert claim is not None
    assert other is not None
    assert dead.jobs.sweep() == {}
    assert reap(database, dead.id) == 1
    assert dead.jobs.sweep() == {mine: "lease-lost"}
    row = dead.jobs.row(mine)
    assert (row["state"], row["crashes"], row["attempt"]) == ("queued", 1, 1)
    assert dead.jobs.finish(claim) is False, "its token is void, should it live after all"
    assert alive.jobs.finish(other)
    assert dead.jobs.row(waiting)["state"] == "queued"
    assert reap(database, dead.id) == 0
    assert execute(database.admin, "select pid from processes") == [(12,)]


def test_another_process_that_had_the_same_pid_is_another(database: TestDatabase, tenant: UUID) -> None:
    before, after = sign_in(database, tenant, 11), sign_in(database, tenant, 11)
    job = after.jobs.accept()
    assert after.jobs.claim(job) is not None
    assert reap(database, before.id) == 0
    assert after.jobs.sweep() == {}
    assert reap(database, uuid7()) == 0


def test_a_job_whose_worker_dies_three_times_is_dead(database: TestDatabase, tenant: UUID) -> None:
    job = Jobs(database, tenant).accept()
    for pid in (1, 2, 3):
        worker = sign_in(database, tenant, pid)
        if pid == 3:
            worker.jobs.dispatch()
        assert worker.jobs.claim(job) is not None
        assert reap(database, worker.id) == 1
        worker.jobs.sweep()
    row = Jobs(database, tenant).row(job)
    assert (row["state"], row["reason"], row["crashes"]) == ("dead", "crashes", 3)


@contextmanager
def still_at_work(database: TestDatabase, statement: str, *values: object) -> Iterator[psycopg.Connection]:
    """The last statement of a process that is gone: its server process has yet to find out."""
    with psycopg.connect(database.admin) as connection:
        connection.execute(statement.encode(), values)
        yield connection


def test_what_the_dead_process_was_just_ending_has_ended(database: TestDatabase, tenant: UUID) -> None:
    dead = sign_in(database, tenant, 11)
    job = dead.jobs.accept()
    claim = dead.jobs.claim(job)
    assert claim is not None
    counted: list[int] = []
    finish = "select finish_job(%s, %s, %s, 'succeeded', '{}', null, null)"
    with still_at_work(database, finish, tenant, job, claim.lease_token) as connection:
        thread = threading.Thread(target=lambda: counted.append(reap(database, dead.id)))
        thread.start()
        until(lambda: execute(database.admin, "select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
        connection.commit()
        thread.join(10)
    assert counted == [0]
    assert dead.jobs.row(job)["state"] == "succeeded"


def test_reaping_does_not_wait_for_ever(database: TestDatabase, tenant: UUID) -> None:
    dead = sign_in(database, tenant, 11)
    job = dead.jobs.accept()
    assert dead.jobs.claim(job) is not None
    with (
        still_at_work(database, "select from jobs where job_id = %s for update", job),
        pytest.raises(Unavailable, match="lock timeout"),
    ):
        reap(database, dead.id)
    assert reap(database, dead.id) == 1, "nothing of the first try is left"


@pytest.mark.chaos
def test_nothing_runs_twice_however_often_workers_are_killed_and_reaped(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """Leases of 60 s: only reaping frees what a killed worker held. Every effect once, and no job at two at once."""
    install_effects(database)
    with fleet(database, redis_url, tenant, lease_seconds="60", max_crashes="100", max_attempts="100") as parts:
        parts.relay()
        accepted: list[UUID] = []
        for _ in range(4):
            victim = parts.process("worker", "fast")
            until(lambda: execute(database.admin, "select 1 from processes where pid = %s", victim.child.pid))  # noqa: B023
            batch = [parts.accept("slow", '{"seconds": 0.3}') for _ in range(8)]
            accepted += batch
            until(lambda: any(parts.job(job).state == "running" for job in batch))  # noqa: B023
            ((process,),) = execute(database.admin, "select process_id from processes where pid = %s", victim.child.pid)
            victim.kill()
            reap(database, process)
        last = parts.process("worker", "fast")
        ended = parts.wait(accepted, 40)
        last.end()
        assert {job.state for job in ended} == {"succeeded"}
        assert effects(database) == dict.fromkeys(accepted, 1)
        assert sum(job.row["crashes"] for job in ended) > 0
        assert all(job.row["attempt"] == job.row["crashes"] + 1 for job in ended)
