"""Accepting: group commit, what a failure costs, and wake-ups that Redis does not take."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import psycopg
import pytest
import redis

from core.errors import Unavailable
from core.faults import Faults
from core.ids import uuid7
from core.jobs.model import Accepted, Idempotency
from core.store.database import Database
from tests.conftest import TestDatabase
from tests.fakes.fleet import Fleet, fleet, until
from tests.fakes.jobs import Jobs, effects, install_effects
from tests.rows import execute
from workers.submit import Submitter

HERE = "127.0.0.1:1"


@contextmanager
def submitter(parts: Fleet, redis_url: str | None = None, faults: Faults | None = None) -> Generator[Submitter]:
    one = Submitter(parts.database.app, redis_url or parts.redis_url, parts.settings(), faults)
    one.open()
    try:
        yield one
    finally:
        one.close()


class Once(Faults):
    """Raises at a point the first time it is met."""

    def __init__(self, point: str) -> None:
        super().__init__()
        self._point = point
        self.met = threading.Event()

    def hit(self, point: str) -> bool:
        if point == self._point and not self.met.is_set():
            self.met.set()
            raise Unavailable(f"fault hook at {point}")
        return False


def test_what_is_accepted_together_is_accepted_in_order(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts, submitter(parts) as one:
        futures = [one.accept(parts.request("write", '{"text":"x"}')) for _ in range(200)]
        accepted = [future.result(30) for future in futures]
        assert [row.job_id for row in accepted] == list(Jobs(database, tenant).rows())
        assert [row.send for row in accepted].count(True) == 1, "one wake-up is good for all writes of a store"
        assert one.redis_ok()


def test_one_bad_row_fails_alone(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts, submitter(parts) as one:
        twice = uuid7()
        with psycopg.connect(database.admin) as holder:
            holder.execute("lock table jobs in exclusive mode")
            first = one.accept(parts.request())  # the writer is busy with this one while the others gather
            until(lambda: _waiting(database))
            group = [one.accept(parts.request(job=job)) for job in (uuid7(), twice, twice, uuid7())]
            group.append(one.accept(parts.request(payload="a NUL: \0")))
            group.append(one.accept(parts.request("write", "{}", store="nowhere")))
            holder.rollback()
        assert first.result(10).outcome == "accepted"
        outcomes = [future.exception(10) or future.result().outcome for future in group]
        assert [outcome for outcome in outcomes if not isinstance(outcome, Exception)] == [
            "accepted", "accepted", "accepted", "unknown-store",
        ]  # fmt: skip
        assert isinstance(outcomes[2], Unavailable)
        assert isinstance(outcomes[4], Unavailable)
        assert len(Jobs(database, tenant).rows()) == 4


@pytest.mark.parametrize("point", ["submit.before", "submit.committed", "submit.wake", "submit.sent", "submit.disk"])
def test_a_failure_at_any_step_ends_neither_thread(
    database: TestDatabase, redis_url: str, tenant: UUID, point: str
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        faults = Once(point)
        with submitter(parts, faults=faults) as one:
            first = one.accept(parts.request())
            assert isinstance(first.exception(10), Unavailable) == (point in ("submit.before", "submit.disk"))
            assert faults.met.wait(10)
            second = one.accept(parts.request()).result(10)
            jobs = Jobs(database, tenant)
            accepted = list(jobs.rows())
            assert second.job_id in accepted
            until(lambda: all(parts.job(job).finished or jobs.hurry() for job in accepted))
            assert effects(database) == dict.fromkeys(accepted, 1)


def test_a_caller_that_goes_away_stops_nobody(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts, submitter(parts) as one:
        with psycopg.connect(database.admin) as holder:
            holder.execute("lock table jobs in exclusive mode")
            gone = one.accept(parts.request())
            assert not gone.cancel(), "the row may be committed already"
            holder.rollback()
        assert one.accept(parts.request()).result(10).outcome == "accepted"
        assert gone.result(10).outcome == "accepted"


def test_h1_redis_away_delays_and_loses_nothing(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        with submitter(parts, redis_url=f"redis://{HERE}/0") as one:
            accepted = [one.accept(parts.request()).result(10).job_id for _ in range(20)]
            until(lambda: not one.redis_ok())
            until(lambda: all(row["sent_at"] is None for row in Jobs(database, tenant).rows().values()))
            parts.relay()
            assert {job.state for job in parts.wait(accepted)} == {"succeeded"}
            assert effects(database) == dict.fromkeys(accepted, 1)


def test_m5_accepting_does_not_wait_for_slow_work(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """All threads of the only worker sleep, as long as models may take."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        slow = [parts.accept("slow", '{"seconds": 3}') for _ in range(24)]
        until(lambda: sum(state == "running" for state in Jobs(database, tenant).states().values()) >= 8)
        took = sorted(_timed(lambda: parts.accept("noop")) for _ in range(50))
        assert took[int(len(took) * 0.95)] < 0.5, took
        for job in slow:
            Jobs(database, tenant).cancel(job)


def test_c3_a_hundred_callers_share_two_connections(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    from core.jobs import service

    with fleet(database, redis_url, tenant) as parts, Database(database.dsn("app"), name="small", size=2) as small:
        one = Submitter(small, redis_url, parts.settings())
        one.open()

        def accept_and_look(_: int) -> str:
            accepted = one.accept(parts.request("noop")).result(20)
            with small.tenant(tenant) as tx:
                return service.get(tx, tenant, accepted.job_id).state

        with ThreadPoolExecutor(100) as pool:
            states = list(pool.map(accept_and_look, range(100)))
        one.close()
        assert states == ["queued"] * 100


def test_h14_a_client_that_replays_its_history_writes_it_once(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    with fleet(database, redis_url, tenant) as parts, submitter(parts) as one:
        parts.worker()
        parts.relay()

        def replay() -> list[Accepted]:
            futures = [
                one.accept(
                    parts.request(
                        "write", f'{{"text":"message {n}"}}', idempotency=Idempotency("r", f"k{n}", bytes([n]), 202)
                    )
                )
                for n in range(100)
            ]
            return [future.result(30) for future in futures]

        first, again = replay(), replay()
        assert {row.outcome for row in first} == {"accepted"}
        assert {row.outcome for row in again} == {"replayed"}
        assert [row.job_id for row in again] == [row.job_id for row in first]
        parts.wait(row.job_id for row in first)
        assert execute(database.admin, "select count(*), max(revision) from documents") == [(100, 100)]


def test_h14_own_ids_write_a_history_once(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        bodies = [f'{{"id":"m-{n}","text":"message {n}"}}' for n in range(40)]
        parts.wait([parts.accept("write", body) for body in bodies])
        refused = [parts.accepted("write", body, document_id=f"m-{n}").outcome for n, body in enumerate(bodies)]
        assert refused == ["document-exists"] * 40
        unseen = parts.wait([parts.accept("write", body) for body in bodies])
        assert {job.as_json()["error"]["type"] for job in unseen} == {"/problems/document-exists"}
        assert execute(database.admin, "select count(*) from documents") == [(40,)]


def test_o1_no_key_of_redis_that_holds_owed_work_runs_out(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """Nor does a row in Postgres: a backlog that is older than every time limit is still done."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        jobs = [parts.accept() for _ in range(5)]
        with redis.Redis.from_url(redis_url) as client:
            until(lambda: client.llen("muniment:embed.interactive") == 5)
            expiring = {key: client.ttl(key) for key in client.scan_iter() if client.ttl(key) >= 0}
            assert not expiring
        Jobs(database, tenant).shift(3 * 86_400)  # longer than any time limit of the broker or of a row at work
        parts.worker()
        parts.relay()
        assert {job.state for job in parts.wait(jobs)} == {"succeeded"}
        assert effects(database) == dict.fromkeys(jobs, 1)


def _timed(work: "object") -> float:
    import time

    began = time.monotonic()
    work()  # pyright: ignore[reportCallIssue]
    return time.monotonic() - began


def _waiting(database: TestDatabase) -> bool:
    blocked = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return bool(execute(database.admin, blocked))
