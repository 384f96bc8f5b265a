"""The relay with real workers: fairness, takeover, outages, unknown kinds, hanging jobs, and what an idle fleet costs."""

import time
from uuid import UUID

import pytest
import redis

from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.fakes.fleet import Fleet, fleet, until
from tests.fakes.jobs import EMBED, Jobs, effects, install_effects
from tests.rows import execute
from tests.services import short_folder, start_valkey
from workers import keeper
from workers.embedded.valkey import Valkey


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit a second after the deadline instead of thirty."""
    monkeypatch.setattr(keeper, "GRACE_SECONDS", 1.0)


def test_another_relay_takes_over_within_the_lease(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        first = parts.process("relay", role="relay")
        until(lambda: execute(database.admin, "select 1 from leases"))
        second = parts.relay()
        jobs = Jobs(database, tenant)
        assert parts.wait(jobs.accept(inflight=0))[0].state == "succeeded"
        assert not second.leads
        first.kill()
        job = jobs.accept(inflight=0)
        assert parts.wait(job, seconds=8)[0].state == "succeeded"
        assert second.leads
        assert execute(database.admin, "select epoch from leases where name = 'relay'") == [(2,)]


def test_a_paused_relay_does_no_harm_when_it_goes_on(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        first = parts.process("relay", role="relay")
        until(lambda: execute(database.admin, "select 1 from leases"))
        first.pause()
        second = parts.relay()
        until(lambda: second.leads)
        jobs = Jobs(database, tenant)
        accepted = [jobs.accept(inflight=0) for _ in range(60)]
        first.go_on()
        assert {job.state for job in parts.wait(accepted)} == {"succeeded"}
        assert effects(database) == dict.fromkeys(accepted, 1)


@pytest.mark.parametrize("point", ["relay.picked", "relay.sent", "relay.swept"])
def test_a_relay_killed_at_any_step_is_replaced(
    database: TestDatabase, redis_url: str, tenant: UUID, point: str
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        jobs = Jobs(database, tenant)
        accepted = [jobs.accept(inflight=0) for _ in range(5)]
        first = parts.process("relay", role="relay", faults=f"{point}=kill", doomed=True)
        assert first.died() == -9
        parts.relay()
        until(lambda: all(parts.job(job).finished or jobs.hurry() for job in accepted))
        assert effects(database) == dict.fromkeys(accepted, 1)


@pytest.mark.parametrize("point", ["relay.picked", "relay.sent", "relay.swept"])
def test_a_relay_goes_on_after_an_error_at_any_step(
    database: TestDatabase, redis_url: str, tenant: UUID, point: str
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        jobs = Jobs(database, tenant)
        accepted = [jobs.accept(inflight=0) for _ in range(5)]
        parts.relay(faults=f"{point}=raise:0.5")
        until(lambda: all(parts.job(job).finished or jobs.hurry() for job in accepted))
        assert effects(database) == dict.fromkeys(accepted, 1)


def test_d7_flushed_wake_ups_are_sent_again(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """Ready, parked and sent work, and then Redis is emptied: everything comes back from Postgres."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        jobs = Jobs(database, tenant)
        sent = [parts.accept() for _ in range(10)]
        parked = jobs.accept()
        claim = jobs.claim(parked)
        assert claim is not None
        assert jobs.retry(claim, delay=0.5) == "queued"
        with redis.Redis.from_url(redis_url) as client:
            until(lambda: client.llen(f"muniment:{EMBED}") == 10)
            client.flushall()
        parts.worker()
        parts.relay()
        assert parts.wait(parked)[0].state == "succeeded", "a delay is a row, not a message"
        assert not any(parts.job(job).finished for job in sent)
        jobs.shift(30)
        assert {job.state for job in parts.wait(sent)} == {"succeeded"}
        assert effects(database) == dict.fromkeys([*sent, parked], 1)


def test_an_outage_of_redis_is_logged_when_it_begins_and_when_it_ends(
    database: TestDatabase, tenant: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    """By each that noticed it: the relay and its ear, who accepts, and the consumer of each queue."""
    install_effects(database)
    told = (
        ("workers.relay", "Redis took no wake-ups", "Redis takes wake-ups again"),
        ("workers.submit", "Redis took no wake-ups", "Redis takes wake-ups again"),
        ("workers.channels", "nudges are not heard", "nudges are heard again"),
        ("workers.wakeups", "embed.interactive: wake-ups are not heard", "embed.interactive: wake-ups are heard again"),
    )

    def said(logger: str, begins: str) -> int:
        records = [(record.name, record.getMessage()) for record in caplog.records]
        return sum(name == logger and text.startswith(begins) for name, text in records)

    with short_folder() as folder:
        server = start_valkey(folder)
        port = server.port
        try:
            with fleet(database, server.url, tenant) as parts:
                parts.worker()
                parts.relay()
                parts.wait(parts.accept())
                server.stop()
                before = parts.accept()
                until(lambda: all(said(logger, away) for logger, away, _ in told))
                assert not any(said(logger, back) for logger, _, back in told)
                server = Valkey(folder / "valkey", port=port, persistent=False)
                server.start()
                until(lambda: said("workers.relay", "Redis takes wake-ups again"))
                jobs = [before, parts.accept(), parts.accept()]
                assert {job.state for job in parts.wait(jobs)} == {"succeeded"}
                until(lambda: all(said(logger, back) for logger, _, back in told))
                assert [said(logger, back) for logger, _, back in told] == [1, 1, 1, 1]
        finally:
            server.stop()


def test_d3_a_dead_job_outlives_redis(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("fail", max_attempts=1)
        assert parts.wait(job)[0].state == "dead"
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()
        execute(database.admin, "update jobs set kind = 'counter' where job_id = %s", job)  # the cause is mended
        assert Jobs(database, tenant).revive(job) == "queued"
        assert parts.wait(job)[0].state == "succeeded"
        assert effects(database) == {job: 1}


def test_d9_a_kind_of_a_newer_version_waits_for_it(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        old = parts.process("worker", "fast", "noop")
        parts.relay()
        unknown = parts.accept("counter")
        neighbours = [parts.accept("noop") for _ in range(5)]
        assert {job.state for job in parts.wait(neighbours)} == {"succeeded"}
        shown = parts.wait_state(unknown, "deferred").as_json()
        assert (shown["reason"], shown["attempt"]) == ("unknown-kind", 0)
        assert shown["runAt"]
        old.end()
        parts.worker()
        Jobs(database, tenant).run_out(unknown)
        assert parts.wait(unknown)[0].state == "succeeded"


def test_d9_an_unknown_kind_of_write_keeps_its_place(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    with fleet(database, redis_url, tenant) as parts:
        jobs = Jobs(database, tenant)
        before, unknown, after = (
            jobs.accept(kind, "write.interactive", {"text": "x"}) for kind in ("write", "from-tomorrow", "write")
        )
        parts.worker()
        parts.relay()
        jobs.unsend([before])
        assert parts.wait(before)[0].state == "succeeded"
        assert parts.wait_state(unknown, "deferred").row["reason"] == "unknown-kind"
        assert (parts.job(after).state, parts.job(after).row["attempt"]) == ("queued", 0)
        execute(database.admin, "update jobs set kind = 'write' where job_id = %s", unknown)  # a worker that knows it
        jobs.run_out(unknown)
        assert [job.result["revision"] for job in parts.wait([unknown, after]) if job.result] == [2, 3]


@pytest.mark.usefixtures("short_grace")
def test_s3_a_job_that_hangs_is_interrupted_and_tried_again(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        hanging = [parts.accept("hang") for _ in range(8)]  # every thread there is
        jobs = Jobs(database, tenant)
        until(lambda: all(parts.job(job).row["reason"] == "retry" for job in hanging))
        assert "TimeLimitExceeded" in parts.job(hanging[0]).as_json()["error"]["detail"]
        other = parts.accept()
        assert parts.wait(other)[0].state == "succeeded", "the slot was not freed"
        jobs.run_out()
        assert {job.state for job in parts.wait(hanging)} == {"succeeded"}
        assert effects(database) == dict.fromkeys([*hanging, other], 1)


@pytest.mark.usefixtures("short_grace")
def test_s3_a_job_blocked_in_one_call_goes_to_another_thread(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """Nothing can end the call, so the keeper lets the lease run out; its late return writes nothing."""
    install_effects(database)
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        parts.relay()
        job = parts.accept("block", '{"seconds": 9}')
        ended = parts.wait(job)[0]
        assert (ended.state, ended.row["attempt"], ended.row["crashes"]) == ("succeeded", 2, 1)
        assert effects(database) == {job: 1}


def test_s23_s24_light_tenants_beside_one_that_imports(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """One tenant with 300 jobs ahead of all others: they do not wait for it, and it gets on."""
    install_effects(database)
    with database.relay.system() as tx:
        lights = [create_tenant(tx, f"light-{n}").id for n in range(10)]
    with fleet(database, redis_url, tenant) as parts:
        bulk = Jobs(database, tenant)
        for _ in range(300):
            bulk.accept("slow", body={"seconds": 0.04}, inflight=0)
        parts.worker()
        parts.relay()
        until(lambda: sum(effects(database).values()) >= 8)
        light = [(one, parts.accept("counter", tenant=one)) for one in lights for _ in range(2)]
        until(lambda: len(_waits(parts, light)) == len(light))
        waits = sorted(_waits(parts, light))
        done = [bulk.row(job) for job in bulk.rows()]
        assert waits[-1] < 2.0, waits
        assert any(row["state"] != "succeeded" for row in done), "the backlog ended too soon to say anything"
        progress = sum(effects(database).values())
        until(lambda: sum(effects(database).values()) >= progress + 50, what="the bulk tenant stands still")
        bulk_left = [job for job, state in bulk.states().items() if state == "queued"]
        for job in bulk_left:
            bulk.cancel(job)


def test_d6_a_slow_tenant_does_not_hold_what_others_could_take(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """Two processes of 8 threads, one tenant's 16 slow jobs in flight: another's jobs are not stuck behind them."""
    install_effects(database)
    with database.relay.system() as tx:
        other = create_tenant(tx, "other").id
    with fleet(database, redis_url, tenant) as parts:
        parts.worker()
        slow = [parts.accept("slow", '{"seconds": 1.5}') for _ in range(12)]
        until(lambda: list(Jobs(database, tenant).states().values()).count("running") == 8)
        parts.worker()
        parts.relay()
        quick = [(other, parts.accept("counter", tenant=other)) for _ in range(4)]
        until(lambda: len(_waits(parts, quick)) == 4, 1.4, what="prefetched and forgotten")
        parts.wait(slow)


def test_s38_an_idle_fleet_asks_little_of_postgres(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    """A thousand tenants, three workers and the relay, at the product's own clocks: tenants without work cost nothing."""
    execute(
        database.admin,
        "insert into tenants (tenant_id, name) select gen_random_uuid(), 'idle-' || n from generate_series(1, 1000) n",
    )
    own = {
        "renew_seconds": "10",
        "lease_seconds": "30",
        "sweep_seconds": "5",
        "relay_poll_seconds": "1",
        "relay_lease_seconds": "5",
    }
    with fleet(database, redis_url, tenant, **own) as parts:
        for group in ("fast", "model", "bulk"):
            parts.worker(group)
        relay = parts.relay()
        until(lambda: relay.leads)
        began, first = time.monotonic(), _commits(database)
        until(lambda: time.monotonic() - began > 5, 10)
        a_second = (_commits(database) - first) / (time.monotonic() - began)
        assert a_second < 30, a_second


def _waits(parts: Fleet, jobs: list[tuple[UUID, UUID]]) -> list[float]:
    rows = [Jobs(parts.database, tenant).row(job) for tenant, job in jobs]
    return [(row["started_at"] - row["ready_at"]).total_seconds() for row in rows if row["state"] == "succeeded"]


def _commits(database: TestDatabase) -> int:
    execute(database.admin, "select pg_stat_clear_snapshot()")
    found = execute(
        database.admin, "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    )
    return found[0][0]
