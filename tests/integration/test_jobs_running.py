"""Jobs on a real worker, relay and Redis, in one process: how each way to end looks from outside."""

import json
from uuid import UUID

from core.budget.caps import set_provider_caps
from tests.conftest import TestDatabase
from tests.fakes.fleet import fleet, until
from tests.fakes.jobs import Jobs, effects, install_effects


def test_a_job_runs_once_and_says_what_it_did(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        jobs = [parts.accept() for _ in range(40)]
        ended = parts.wait(jobs)
        assert {job.state for job in ended} == {"succeeded"}
        assert all(job.result == {"attempt": 1} for job in ended)
        assert effects(database) == dict.fromkeys(jobs, 1)


def test_s2_a_job_that_always_fails_is_dead_after_its_attempts(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("fail", max_attempts=3)
        for attempt in (1, 2):
            until(lambda: parts.job(job).row["run_at"] and parts.job(job).row["attempt"] == attempt)  # noqa: B023
            Jobs(database, tenant).run_out(job)
        ended = parts.wait(job)[0]
        assert (ended.state, ended.row["attempt"], ended.row["reason"]) == ("dead", 3, "attempts")
        assert ended.as_json()["error"]["detail"] == "attempt 3 failed"
        assert parts.wait(parts.accept())[0].state == "succeeded", "the slot was not freed"


def test_d4_the_next_try_is_visible_and_counts_as_parked(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("fail")
        until(lambda: parts.job(job).row["attempt"] == 1 and parts.job(job).state == "queued")
        shown = parts.job(job).as_json()
        assert shown["state"] == "queued"
        assert shown["reason"] == "retry"
        assert shown["runAt"] > shown["startedAt"]
        assert shown["error"]["detail"] == "attempt 1 failed"
        with database.relay.system() as tx:
            backlog = {row["queue"]: row for row in tx.rows("backlog")}["embed.interactive"]
        assert (backlog["ready_jobs"], backlog["parked_jobs"], backlog["ready_oldest_age_seconds"]) == (0, 1, 0)
        assert Jobs(database, tenant).claim(job) is None, "a wake-up must not run it early"


def test_s41_an_error_without_a_text_still_has_a_name(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        job = parts.accept("refuse", max_attempts=1)
        ended = parts.wait(job)[0]
        assert ended.state == "dead"
        assert "ZeroDivisionError" in ended.as_json()["error"]["detail"]


def test_h9_a_body_that_is_no_json_ends_its_job_and_no_other(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        bodies = ["{}", "{", "[1]", '"text"', "null", "{}"]
        jobs = [parts.accept("counter", body) for body in bodies]
        ended = parts.wait(jobs)
        assert [job.state for job in ended] == ["succeeded", "failed", "failed", "failed", "failed", "succeeded"]
        assert all("cannot be read" in job.as_json()["error"]["detail"] for job in ended[1:5])


def test_a_deferred_job_keeps_its_attempts_and_runs_later(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("defer")
        shown = parts.wait_state(job, "deferred").as_json()
        assert (shown["attempt"], shown["reason"]) == (0, "money")
        assert shown["runAt"] > shown["createdAt"]
        Jobs(database, tenant).shift(7200)
        assert parts.wait(job)[0].row["attempt"] == 1


def test_a_job_without_money_waits_for_it_and_a_read_is_told(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    with fleet(database, redis_url, tenant, budget_retry_seconds="600") as parts:
        parts.worker()
        parts.relay()
        waiting, asked = parts.accept("spend"), parts.accept("ask")
        shown = parts.wait_state(waiting, "deferred").as_json()
        assert (shown["attempt"], shown["reason"]) == (0, "budget")
        assert shown["runAt"] > shown["createdAt"]
        told = parts.wait(asked)[0].as_json()
        assert (told["state"], told["error"]["type"], told["error"]["status"]) == (
            "failed",
            "/problems/budget-spent",
            402,
        )
        assert "cap for jev" in told["error"]["detail"]
        with database.relay.system() as tx:
            set_provider_caps(tx, {"jev": 1}, {})  # wakes it, long before its time
        until(lambda: parts.job(waiting).row["started_at"] > parts.job(asked).row["finished_at"])


def test_a_cancelled_job_keeps_nothing_of_its_work(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("slow", '{"seconds": 1}')
        parts.wait_state(job, "running")
        assert Jobs(database, tenant).cancel(job) == "ended"
        after = parts.accept("slow", '{"seconds": 1.2}')
        parts.wait(after)
        assert parts.job(job).state == "cancelled"
        assert effects(database) == {after: 1}


def test_many_jobs_of_a_kind_that_batches(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        jobs = [parts.accept("many") for _ in range(300)]
        ended = parts.wait(jobs)
        assert all(job.state == "succeeded" and job.row["attempt"] == 1 for job in ended)


def test_the_last_child_wakes_its_parent(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("parent", json.dumps({"children": 30}))
        ended = parts.wait(job)[0]
        assert ended.result == {"succeeded": 30}
        assert ended.row["attempt"] == 1, "waiting cost an attempt"
        assert len(effects(database)) == 30


def test_children_that_end_badly_wake_their_parent_too(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        jobs = Jobs(database, tenant)
        parent = parts.accept("parent", json.dumps({"children": 2, "child": "fail"}))
        parts.wait_state(parent, "waiting")
        children = [job for job, row in jobs.rows().items() if row["parent_id"] == parent]
        assert jobs.cancel(children[0]) in {"ended"}
        for _ in range(4):
            until(lambda: parts.job(children[1]).row["run_at"])
            attempt = parts.job(children[1]).row["attempt"]
            jobs.run_out(children[1])
            until(lambda: parts.job(children[1]).row["attempt"] > attempt)  # noqa: B023
        assert parts.wait(parent)[0].result == {"cancelled": 1, "dead": 1}


def test_h6_ready_work_and_idle_workers_do_not_coexist(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """Bursts of jobs beyond the limit of what is in flight, with pauses: none may wait while threads are idle."""
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        waits: list[float] = []
        for _ in range(5):
            ended = parts.wait([parts.accept("noop") for _ in range(60)])
            waits += [(job.row["started_at"] - job.row["created_at"]).total_seconds() for job in ended]
        assert max(waits) < 5.0
