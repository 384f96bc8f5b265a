"""Workers that are killed, that die of their job, that are paused and come back: on real processes."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.conftest import TestDatabase
from tests.fakes.fleet import fleet, until
from tests.fakes.jobs import WRITE, Jobs, effects, install_effects
from tests.rows import execute

pytestmark = pytest.mark.chaos
KILLS = 3
OTHERS = """select 1 from pg_stat_activity
             where datname = current_database() and application_name in ('muniment-accept', 'muniment-worker-fast')"""


def test_s1_d1_another_worker_finishes_what_a_killed_one_held(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """Three kills, each in the middle of eight jobs, on an otherwise idle fleet; leases of 2 s (the product's: 30 s).

    `python -m tests.bench.kill` does thirty."""
    install_effects(database)
    with fleet(database, redis_url, tenant, lease_seconds="2") as parts:
        parts.relay()
        held: list[UUID] = []
        victim = parts.process("worker", "fast")
        for _ in range(KILLS):
            batch = [parts.accept("slow", '{"seconds": 0.4}') for _ in range(8)]
            until(lambda: all(parts.job(job).state == "running" for job in batch))  # noqa: B023
            victim.kill()
            held += batch
            victim = parts.process("worker", "fast")
            ended = parts.wait(batch, 60)
            assert {(job.state, job.row["attempt"], job.row["crashes"]) for job in ended} == {("succeeded", 2, 1)}
        assert effects(database) == dict.fromkeys(held, 1)


def test_d2_a_job_that_kills_its_worker_three_times_is_dead(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant, lease_seconds="1") as parts:
        parts.relay()
        jobs = Jobs(database, tenant)
        bad = parts.accept("die")
        neighbours = [parts.accept("counter") for _ in range(6)]
        for _ in range(3):
            victim = parts.process("worker", "fast", doomed=True)
            until(lambda: victim.child.poll() is not None or jobs.hurry())  # noqa: B023
            assert victim.died() == -9
        dead = parts.wait_state(bad, "dead")
        assert (dead.row["reason"], dead.row["crashes"]) == ("crashes", 3)
        parts.worker()
        assert {job.state for job in parts.wait(neighbours)} == {"succeeded"}
        assert effects(database) == dict.fromkeys(neighbours, 1)


def test_s43_a_worker_that_was_paused_past_its_lease_writes_nothing(
    database: TestDatabase, redis_url: str, tenant: UUID, tmp_path: Path
) -> None:
    """SIGSTOP in mid-work; another worker does the job; then the first goes on and tries to commit."""
    install_effects(database)
    started, gate = tmp_path / "started", tmp_path / "open"
    with fleet(database, redis_url, tenant, lease_seconds="1") as parts:
        first = parts.process("worker", "fast")
        job = parts.accept("gate", json.dumps({"started": str(started), "open": str(gate)}))
        until(started.exists)
        first.pause()
        gate.touch()
        parts.worker()
        parts.relay()
        assert parts.wait(job)[0].row["attempt"] == 2
        first.go_on()
        until(lambda: "its work is discarded" in first.errors())
        assert effects(database) == {job: 1}


def test_g2_everything_is_killed_under_load_and_nothing_is_missing(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """Workers, relay and the accepting process at once; then all are started again."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        victims = [parts.process("worker", "fast"), parts.process("relay", role="relay")]
        client = parts.process("accept")
        lines = [[str(tenant), str(UUID(int=n + 1)), "counter", "interactive", None, "{}"] for n in range(150)]
        lines += [
            [str(tenant), str(UUID(int=n + 1)), "write", "interactive", "journal", '{"text":"x"}']
            for n in range(150, 200)
        ]
        for line in lines:
            client.say(json.dumps(line))
        told = [client.read() for _ in range(120)]
        for one in (*victims, client):
            one.kill()
        jobs = Jobs(database, tenant)
        until(lambda: not execute(database.admin, OTHERS), what="a dead client's last statement still runs")
        known = list(jobs.rows())
        assert {UUID(one) for one in told} <= set(known), "an accepted job is not there"
        jobs.shift(30)  # leases and owed wake-ups of the dead
        parts.worker()
        parts.relay()
        assert {job.state for job in parts.wait(known, 40)} == {"succeeded"}
        counters = [job for job in known if jobs.row(job)["kind"] == "counter"]
        assert effects(database) == dict.fromkeys(counters, 1)
        writes = len([job for job in known if jobs.row(job)["kind"] == "write"])
        assert execute(database.admin, "select count(*), coalesce(max(revision), 0) from documents") == [
            (writes, writes)
        ]


def test_a_graceful_stop_finishes_what_runs_and_strands_nothing(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.relay()
        first = parts.process("worker", "fast")
        accepted = [parts.accept("slow", '{"seconds": 0.3}') for _ in range(30)]
        until(lambda: any(parts.job(job).state == "running" for job in accepted))
        first.end()
        assert first.died() == 0
        assert "running" not in Jobs(database, tenant).states().values()
        parts.worker()
        ended = parts.wait(accepted)
        assert all(job.state == "succeeded" and job.row["attempt"] == 1 for job in ended)
        assert effects(database) == dict.fromkeys(accepted, 1)


def test_a_killed_write_takes_its_neighbours_only_once(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant, lease_seconds="1") as parts:
        jobs = Jobs(database, tenant)
        accepted = [jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(5)]
        doomed = parts.process("worker", "fast", faults="writes.finished=kill", doomed=True)
        jobs.unsend(accepted)
        parts.relay()
        assert doomed.died() == -9
        parts.worker()
        ended = parts.wait(accepted)
        assert [(job.result or {})["revision"] for job in ended] == [1, 2, 3, 4, 5]
        assert {(job.row["attempt"], job.row["crashes"]) for job in ended} == {(2, 1)}


def test_a_worker_with_a_thread_that_hangs_leaves_after_its_other_jobs(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """A call that nothing interrupts, 60 s long, in a job of 1 s. Whoever started the worker starts a sound one."""
    install_effects(database)
    with fleet(database, redis_url, tenant, lease_seconds="2", shutdown_seconds="4") as parts:
        parts.relay()
        worker = parts.process("watched", "fast")
        hung = parts.accept("block", json.dumps({"seconds": 60}))
        parts.wait_state(hung, "running")
        until(lambda: "overran its time limit" in worker.errors())
        others = [parts.accept("slow", '{"seconds": 2}') for _ in range(2)]
        assert worker.died(30) == 1
        assert f"job {hung} overran its time, and its thread cannot be ended" in worker.errors()
        assert {(job.state, job.row["attempt"]) for job in parts.wait(others)} == {("succeeded", 1)}
        assert parts.job(hung).row["crashes"] == 1, "it counts as a crash of its worker"
        parts.process("watched", "fast")
        assert parts.wait(hung)[0].row["attempt"] == 2
        assert effects(database) == dict.fromkeys([hung, *others], 1)
