"""A fault at every statement boundary of claim and commit: killed there, or failing there once, each job still has its effect
exactly once. The boundaries of submit and relay are in `tests/integration/test_submit.py` and `test_relay.py`."""

import json
import threading
from uuid import UUID

import pytest

from core.errors import Unavailable
from core.faults import Faults
from core.ids import uuid7
from tests.conftest import TestDatabase
from tests.fakes.fleet import Fleet, fleet, until
from tests.fakes.jobs import WRITE, Jobs, effects, install_effects
from tests.rows import execute

JOB_POINTS = (
    "claim.before",
    "claim.after",
    "work.before",
    "work.after",
    "commit.begin",
    "commit.before",
    "commit.after",
)
WRITE_POINTS = (
    "claim.before", "claim.after", "work.before", "commit.begin", "writes.locked", "writes.checked", "writes.inserted",
    "writes.finished", "commit.before", "commit.after",
)  # fmt: skip


class Once(Faults):
    """Fails at a point the first time it is met."""

    def __init__(self, point: str) -> None:
        super().__init__()
        self._point = point
        self.met = threading.Event()

    def hit(self, point: str) -> bool:
        if point == self._point and not self.met.is_set():
            self.met.set()
            raise Unavailable(f"fault hook at {point}")
        return False


def accept(parts: Fleet, kind: str) -> list[UUID]:
    if kind == "write":
        return [parts.accept("write", json.dumps({"text": f"text {n}"})) for n in range(4)]
    return [parts.accept(kind) for _ in range(4)]


def recover(parts: Fleet, accepted: list[UUID], kind: str) -> None:
    """Until all have ended, and each exactly once, in order."""
    jobs = Jobs(parts.database, parts.tenant)
    until(lambda: all(parts.job(job).finished or jobs.hurry() for job in accepted), 40, lambda: jobs.rows())
    ended = [parts.job(job) for job in accepted]
    assert {job.state for job in ended} == {"succeeded"}
    if kind == "write":
        assert [(job.result or {})["revision"] for job in ended] == [1, 2, 3, 4]
        assert execute(parts.database.admin, "select count(*), count(distinct document_id) from documents") == [(4, 4)]
        assert execute(parts.database.admin, "select revision, position from stores") == [(4, 4)]
    else:
        assert effects(parts.database) == dict.fromkeys(accepted, 1)


CASES = [("counter", point) for point in JOB_POINTS] + [("write", point) for point in WRITE_POINTS]


@pytest.mark.chaos
@pytest.mark.parametrize(("kind", "point"), CASES)
def test_s1_b1_o2_killed_at(database: TestDatabase, redis_url: str, tenant: UUID, kind: str, point: str) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.relay()
        accepted = accept(parts, kind)
        doomed = parts.process("worker", "fast", faults=f"{point}=kill", doomed=True)
        assert doomed.died(40) == -9
        Jobs(database, tenant).run_out()  # the leases of the dead
        parts.worker()
        recover(parts, accepted, kind)


@pytest.mark.parametrize(("kind", "point"), CASES)
def test_o2_failed_once_at(
    database: TestDatabase, redis_url: str, tenant: UUID, kind: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_effects(database)
    fault = Once(point)
    monkeypatch.setattr("workers.main.Faults", lambda spec: fault)
    with fleet(database, redis_url, tenant) as parts:
        accepted = accept(parts, kind)
        parts.worker()
        parts.relay()
        assert fault.met.wait(20)
        recover(parts, accepted, kind)


@pytest.mark.chaos
def test_h1_the_accepting_process_dies_between_commit_and_wake_up(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        doomed = parts.process("accept", faults="submit.committed=kill")
        job = uuid7()
        doomed.say(json.dumps([str(tenant), str(job), "counter", "interactive", None, "{}"]))
        assert doomed.died() == -9
        jobs = Jobs(database, tenant)
        assert jobs.states() == {job: "queued"}, "it was committed, and nobody was woken"
        jobs.shift(30)
        assert parts.wait(job)[0].state == "succeeded"
        assert effects(database) == {job: 1}


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["submit.before", "submit.wake", "submit.sent", "submit.disk"])
def test_h1_the_accepting_process_dies_elsewhere(
    database: TestDatabase, redis_url: str, tenant: UUID, point: str
) -> None:
    """What it acknowledged gets done; what it did not may be there, whole, or not at all."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        doomed = parts.process("accept", faults=f"{point}=kill")
        doomed.say(json.dumps([str(tenant), str(uuid7()), "counter", "interactive", None, "{}"]))
        assert doomed.died() == -9
        jobs = Jobs(database, tenant)
        known = list(jobs.rows())
        assert len(known) == (point != "submit.before")
        parts.worker()
        parts.relay()
        until(lambda: all(parts.job(job).finished or jobs.hurry() for job in known))
        assert effects(database) == dict.fromkeys(known, 1)


def test_s2_s7_the_connection_breaks_at_the_final_write(
    database: TestDatabase, redis_url: str, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection of the workers is ended just before a terminal state is written: success, failure and retry."""
    install_effects(database)
    cut = _Cut(database)
    monkeypatch.setattr("workers.endings.Endings._end", cut.wrap())
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        jobs = [parts.accept("counter"), parts.accept("counter", "{"), parts.accept("fail", max_attempts=1)]
        ended = parts.wait(jobs)
        assert [job.state for job in ended] == ["succeeded", "failed", "dead"]
        assert cut.times >= 3
        assert effects(database) == {jobs[0]: 1}
        assert parts.wait(parts.accept())[0].state == "succeeded"


class _Cut:
    """Ends the workers' connections before the first try of each ending."""

    def __init__(self, database: TestDatabase) -> None:
        self._database = database
        self._seen: set[UUID] = set()
        self.times = 0

    def wrap(self) -> object:
        from workers.endings import Endings

        original = Endings._end

        def cut(endings: Endings, claim: "object", outcome: object, took: float) -> bool:
            job: UUID = claim.job_id  # pyright: ignore[reportAttributeAccessIssue]
            if job not in self._seen:
                self._seen.add(job)
                self.times += 1
                execute(
                    self._database.admin,
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and application_name like 'muniment-worker%%'",
                )
            return original(endings, claim, outcome, took)  # pyright: ignore[reportArgumentType]

        return cut


def test_writes_survive_a_connection_that_breaks_in_mid_commit(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    with fleet(database, redis_url, tenant) as parts:
        jobs = Jobs(database, tenant)
        accepted = [jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(3)]
        doomed = parts.process("worker", "fast", faults="writes.inserted=sleep:1:0.7")
        connected = (
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and state = 'idle in transaction' and application_name like 'muniment-worker%%'"
        )
        jobs.unsend(accepted)
        parts.relay()
        until(lambda: execute(database.admin, connected))
        doomed.kill()
        jobs.run_out()
        parts.worker()
        until(lambda: all(parts.job(job).finished or jobs.hurry() for job in accepted), 30)
        assert [(parts.job(job).result or {}).get("revision") for job in accepted] == [1, 2, 3]
