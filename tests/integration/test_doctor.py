"""`muniment doctor` names eight seeded misconfigurations, and raises no false alarm (failure-cases.md H7)."""

import json
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest
import redis
import typer
from typer.testing import CliRunner

from api.cli.doctor import doctor
from api.cli.examining import examine
from core.doctor.model import Report
from core.ids import uuid7
from core.models.granting import put_profile
from core.settings import Settings, load
from core.store.migrate import bootstrap, migrate
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.contract.server import running
from tests.fakes import pgbouncer
from tests.fakes.fleet import fleet, until
from tests.rows import ago, execute, insert_jobs
from tests.services import short_folder
from workers.queues import GROUPS

CANARY = "canary-71be5d3c"
HEALTHY = 3600  # seconds a test's processes and leases stay fresh


@dataclass
class Site:
    """A database with its API and key, and with the rows that a whole fleet writes."""

    database: TestDatabase
    url: str
    key: str
    redis_url: str

    def examine(self, **settings: Any) -> Report:
        return examine(load({}, **{**self.settings, **settings}))

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "database_url": self.database.dsn("owner"),
            "redis_url": self.redis_url,
            "url": self.url,
            "api_key": self.key,
        }


@pytest.fixture
def site(database: TestDatabase, redis_url: str) -> Iterator[Site]:
    for group in GROUPS.values():
        report(database, f"worker-{group.name}", list(group.queues))
    report(database, "relay", [])
    execute(
        database.admin,
        "insert into leases (name, holder, lease_until) values ('relay', 'test', now() + make_interval(secs => %s))",
        HEALTHY,
    )
    with running(database, redis_url) as api:
        yield Site(database, api.url, api.key(api.tenant()), redis_url)


def report(
    database: TestDatabase, role: str, queues: list[str], skew_ms: int = 0, keys: Sequence[str] | None = None
) -> None:
    execute(
        database.admin,
        """insert into processes (process_id, role, host, pid, queues, clock_skew_ms, key_envs, seen_at)
           values (%s, %s, 'here', 1, %s, %s, %s, now() + make_interval(secs => %s))""",
        uuid7(), role, queues, skew_ms, None if keys is None else list(keys), HEALTHY,
    )  # fmt: skip


def causes(report: Report) -> list[str]:
    return report.as_json()["causes"]


def told(report: Report, check: str) -> str:
    (finding,) = [entry for entry in report.findings if entry.check == check]
    return f"{finding.status}: {finding.measured} {finding.look}"


def test_a_healthy_system_raises_no_alarm_and_no_promise(site: Site) -> None:
    report = site.examine()
    assert not report.sick, report.as_json()
    assert {entry.status for entry in report.findings} == {"ok"}, report.as_json()
    assert "unknown to this command" in report.conclusion
    assert report.as_json()["lookAt"]


def test_no_worker_for_a_queue(site: Site, tenant: UUID) -> None:
    execute(site.database.admin, "update processes set seen_at = now() - interval '10 min' where role = 'worker-fast'")
    insert_jobs(site.database.admin, tenant, "write.interactive", 3, ready_at=ago(300))
    report = site.examine()
    assert causes(report) == ["no-worker"]
    text = told(report, "workers")
    assert "write.interactive (3 jobs wait, the oldest for 5 min)" in text
    assert "muniment worker fast" in text
    assert "worker-fast on here (pid 1) is not answering since 10 min" in text


def test_a_frozen_worker_is_named_after_two_of_its_reports(site: Site, tenant: UUID) -> None:
    """SIGSTOP: its connections stay open, its row stays, and others of its kind do the work."""
    with fleet(site.database, site.redis_url, tenant, renew_seconds="2", lease_seconds="20") as parts:
        worker = parts.process("worker", "bulk")
        name = f"worker-bulk on {socket.gethostname()} (pid {worker.child.pid})"
        reported = "select 1 from processes where pid = %s"
        until(lambda: execute(site.database.admin, reported, worker.child.pid))
        assert causes(site.examine(renew_seconds=2)) == []
        worker.pause()
        began = monotonic()
        found = until(lambda: (told := site.examine(renew_seconds=2)).sick and told, 15)
        assert causes(found) == ["not-answering"]
        assert re.search(re.escape(name) + r" is not answering since \d s", told(found, "workers"))
        assert "restart it" in told(found, "workers")
        assert monotonic() - began < 10
        worker.go_on()
        until(lambda: not site.examine(renew_seconds=2).sick, 15)


def test_a_process_that_was_replaced_or_is_long_gone_is_no_alarm(site: Site) -> None:
    gone = """insert into processes (process_id, role, host, pid, queues, started_at, seen_at)
              values (%s, %s, %s, 2, %s, now() - interval '1 day', now() - %s * interval '1 s')"""
    queues = list(GROUPS["fast"].queues)
    execute(site.database.admin, gone, uuid7(), "worker-fast", "elsewhere", queues, 1200)
    execute(site.database.admin, gone, uuid7(), "worker-fast", "here", queues, 60)  # the site's own started after it
    assert causes(site.examine()) == []
    execute(site.database.admin, gone, uuid7(), "worker-fast", "third", queues, 60)
    assert causes(site.examine()) == ["not-answering"]


def test_the_wrong_key(site: Site) -> None:
    report = site.examine(api_key="mun_" + "x" * 43)
    assert causes(report) == ["wrong-key"]
    assert "401" in told(report, "key")


def test_the_wrong_key_is_found_without_the_api(site: Site) -> None:
    report = site.examine(api_key="mun_" + "x" * 43, url="http://127.0.0.1:1")
    assert causes(report) == ["wrong-key"]
    assert causes(site.examine(url="http://127.0.0.1:1")) == ["api-unreachable"]


def test_a_missing_extension(site: Site) -> None:
    execute(site.database.admin, "drop extension vector cascade")
    report = site.examine()
    assert causes(report) == ["missing-extension"]
    assert "create extension vector" in told(report, "extension")


def test_a_migration_behind(site: Site) -> None:
    execute(site.database.admin, "update function_versions set digest = 'of an older version'")
    report = site.examine()
    assert causes(report) == ["migrations-behind"]
    assert "functions" in told(report, "migrations")


def test_a_database_without_any_migration(site: Site) -> None:
    empty = f"e_{uuid7().hex}"
    execute(site.database.server.superuser_dsn, f"create database {empty} owner muniment_owner")
    try:
        dsn = site.database.dsn("owner").rpartition("/")[0] + f"/{empty}"
        report = site.examine(database_url=dsn)
    finally:
        execute(site.database.server.superuser_dsn, f"drop database {empty} with (force)")
    assert causes(report) == ["missing-extension", "migrations-behind"]
    assert told(report, "workers").startswith("skipped")


def test_roles_of_an_older_version(site: Site) -> None:
    """What is told helps: the settings are there after a second bootstrap, and not after a migration."""
    administrator = site.database.server.superuser_dsn
    try:
        execute(administrator, "alter role muniment_app reset enable_seqscan")
        execute(administrator, "alter role muniment_exporter set plan_cache_mode = auto")
        migrate(site.database.dsn("owner"))
        report = site.examine()
    finally:
        bootstrap(administrator, {}, site.database.name)
    assert causes(report) == ["role-settings-missing"]
    assert "muniment_app enable_seqscan=off, muniment_exporter plan_cache_mode=force_custom_plan" in told(
        report, "roles"
    )
    assert "`muniment migrate --bootstrap ADMIN_URL` again" in told(report, "roles")
    assert causes(site.examine()) == []


def test_redis_that_evicts(site: Site) -> None:
    with redis.Redis.from_url(site.redis_url, socket_timeout=5) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            report = site.examine()
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert causes(report) == ["redis-evicting"]
    assert "allkeys-lru" in told(report, "eviction")


def test_redis_that_has_evicted(site: Site) -> None:
    with redis.Redis.from_url(site.redis_url, socket_timeout=5) as client:
        try:
            client.config_set("maxmemory-policy", "allkeys-random")
            client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + 1_000_000)
            for n in range(100):
                client.set(f"key-{n}", b"x" * 50_000)
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")
        report = site.examine()
        client.config_resetstat()
    assert causes(report) == ["redis-evicting"]


@pytest.mark.parametrize("skew_ms", [-5_000, 5_000])
def test_clock_skew(site: Site, skew_ms: int) -> None:
    report(site.database, "worker-fast", [], skew_ms=skew_ms)
    found = site.examine()
    assert causes(found) == ["clock-skew"]
    assert f"worker-fast on here is {skew_ms / 1000:+.1f} s" in told(found, "clocks")


def test_a_pool_that_is_too_small(site: Site) -> None:
    report = site.examine(pool_size=1)
    assert causes(report) == ["pool-too-small"]
    assert "8 threads on 1 connections" in told(report, "pool")


def test_a_server_without_room(site: Site) -> None:
    ((most,),) = execute(site.database.admin, "select current_setting('max_connections')::integer")
    role = f"crowd_{uuid7().hex[:12]}"
    execute(site.database.admin, f"create role {role} login password 'x'")
    dsn = site.database.server.dsn(role, "x", site.database.name)
    crowd: list[psycopg.Connection[Any]] = []
    try:
        ((used,),) = execute(
            site.database.admin, "select count(*) from pg_stat_activity where backend_type = 'client backend'"
        )
        crowd.extend(psycopg.connect(dsn) for _ in range(int(most * 0.93) - used))
        report = site.examine()
    finally:
        for connection in crowd:
            connection.close()
        execute(site.database.admin, f"drop role {role}")
    assert causes(report) == ["pool-too-small"]
    assert f"of the {most - 3} connections" in told(report, "pool")


@pytest.mark.skipif(pgbouncer.find() is None, reason=pgbouncer.MISSING)
def test_prepared_statements_lost_behind_a_pooler(site: Site) -> None:
    with short_folder() as folder, pgbouncer.pooled(site.database.dsn("owner"), folder, size=16) as dsn:
        lost = site.examine(database_url=dsn)
        off = site.examine(database_url=dsn, prepare=False)
    assert causes(lost) == ["prepared-statements-lost"]
    assert "MUNIMENT_PREPARE=0" in told(lost, "prepared")
    assert causes(off) == []


@pytest.mark.skipif(pgbouncer.find() is None, reason=pgbouncer.MISSING)
def test_a_pooler_with_too_few_connections(site: Site) -> None:
    with short_folder() as folder, pgbouncer.pooled(site.database.dsn("owner"), folder, size=1) as dsn:
        report = site.examine(database_url=dsn, prepare=False)
    assert causes(report) == ["pool-too-small"]


def test_no_relay(site: Site) -> None:
    execute(site.database.admin, "update leases set lease_until = now() - interval '10 min'")
    report = site.examine()
    assert causes(report) == ["no-relay"]


def grant(site: Site, name: str, definition: dict[str, Any], *tenants: UUID) -> None:
    with site.database.relay.system() as tx:
        put_profile(tx, name, definition, [str(one) for one in tenants], filed=(), key_envs={definition["keyEnv"]})


def test_a_key_that_workers_lack_is_named_until_they_have_it(
    site: Site, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the workers' own reports: the doctor's environment has all keys, and that tells nothing."""
    judge = {"kind": "jev", "model": "jev-1.13.0", "keyEnv": "JEV_KEY"}
    grant(site, "judge", judge, tenant)
    grant(site, "nobodys", {**judge, "keyEnv": "OTHER_KEY"})
    grant(site, "vectors", {"kind": "openai", "url": "https://x.example", "model": "m", "keyEnv": "VECTOR_KEY"}, tenant)
    assert told(site.examine(), "model-keys").startswith("skipped: no live worker says")
    monkeypatch.setenv("VECTOR_KEY", CANARY)
    monkeypatch.setenv("JEV_KEY", "")
    with fleet(site.database, site.redis_url, tenant, model_key_envs="JEV_KEY,OTHER_KEY,VECTOR_KEY") as parts:
        without = parts.process("worker", "model")
        fast = parts.process("worker", "fast")
        monkeypatch.setenv("JEV_KEY", CANARY)
        reported = "select key_envs from processes where pid = %s"
        for process in (without, fast):
            assert until(lambda pid=process.child.pid: execute(site.database.admin, reported, pid)) == [
                (["VECTOR_KEY"],)
            ]
        report = site.examine()
        assert causes(report) == ["model-key-missing"]
        name = f"worker-model on {socket.gethostname()} (pid {without.child.pid})"
        assert f"wrong: profile judge: JEV_KEY holds no key at {name} set the variable" in told(report, "model-keys")
        assert CANARY not in json.dumps(report.as_json())
        without.child.terminate()
        without.died()
        healed = parts.process("worker", "model")
        until(lambda: execute(site.database.admin, reported, healed.child.pid))
        assert causes(site.examine()) == []
        assert "every worker has the keys of the profiles that it asks (profiles with a key: 2)" in told(
            site.examine(), "model-keys"
        )


def test_only_workers_that_ask_a_profile_need_its_key(site: Site) -> None:
    execute(site.database.admin, "update processes set key_envs = '{}'")
    grant(site, "vectors", {"kind": "openai", "url": "https://x.example", "model": "m", "keyEnv": "K"}, tenant_of(site))
    text = told(site.examine(), "model-keys")
    assert [group for group in GROUPS if f"worker-{group} on" in text] == ["fast", "model", "bulk"]
    execute(site.database.admin, "update processes set key_envs = '{K}' where role <> 'worker-background'")
    assert causes(site.examine()) == []


def test_profiles_of_the_file_are_looked_at_too(site: Site, tmp_path: Path) -> None:
    execute(site.database.admin, "update processes set key_envs = '{}'")
    file = tmp_path / "models.json"
    file.write_text('{"filed": {"kind": "jev", "model": "jev-1.13.0", "grants": "*"}}')
    report = site.examine(models=file, model_key_envs="TYPESAFE_API_KEY")
    assert causes(report) == ["model-key-missing"]
    assert "profile filed: TYPESAFE_API_KEY holds no key at worker-background on here (pid 1)" in told(
        report, "model-keys"
    )
    assert "TYPESAFE_API_KEY is not listed" in told(site.examine(models=file), "model-keys")
    assert causes(site.examine(models=file)) == []


def test_a_cap_that_is_used_up_is_named_while_jobs_wait_for_it(site: Site, tenant: UUID) -> None:
    admin = site.database.admin
    execute(admin, "update budget_accounts set spent = 8900000000, reserved = 50000000 where provider = 'jev'")
    assert causes(site.examine()) == []
    insert_jobs(admin, tenant, "extract.bulk", 2, state="deferred", run_at=ago(-60), reason="budget")
    report = site.examine()
    assert causes(report) == ["budget-spent"]
    assert "2 jobs wait for money, here or under a narrower cap; jev: 8.9 of 10 USD spent, 0.05 reserved" in told(
        report, "money"
    )
    for cap in (20_000_000_000, 0):  # raised, or meant to stop everything
        execute(admin, "update budget_accounts set cap = %s where provider = 'jev'", cap)
        report = site.examine()
        assert causes(report) == []
        assert "meant to stop them" in told(report, "money")


def tenant_of(site: Site) -> UUID:
    with site.database.relay.system() as tx:
        return create_tenant(tx, "of-the-test").id


def test_services_that_are_away(site: Site) -> None:
    report = site.examine(redis_url="redis://127.0.0.1:1/0", database_url="postgresql://nobody@127.0.0.1:1/none")
    assert causes(report) == ["postgres-unreachable", "redis-unreachable"]
    assert report.sick


def test_what_it_does_not_know_is_called_unknown(site: Site, tenant: UUID) -> None:
    insert_jobs(site.database.admin, tenant, "read.interactive", 2, ready_at=ago(300), sent_at=ago(300))
    report = site.examine()
    assert causes(report) == []
    assert report.sick
    assert told(report, "backlog").startswith("unknown: read.interactive: 2 ready, the oldest for 5 min")
    assert "look at the workers' logs" in told(report, "backlog")
    assert "unknown" in report.conclusion


def test_a_role_that_sees_too_little_is_no_false_ok(site: Site) -> None:
    report = site.examine(database_url=site.database.dsn("app"))
    assert told(report, "backlog").startswith("skipped: the role muniment_app sees one tenant")
    assert "could not be made" in report.conclusion


def test_the_relays_role_is_enough(site: Site) -> None:
    report = site.examine(database_url=site.database.dsn("relay"))
    assert {entry.status for entry in report.findings} == {"ok"}, report.as_json()


def test_stuck_jobs_are_listed(site: Site) -> None:
    with site.database.relay.system() as tx:
        tenant = create_tenant(tx, "stuck").id
    admin = site.database.admin
    error = {"detail": "it cannot be done"}
    stuck = {
        "dead": insert_jobs(admin, tenant, "read.interactive", state="dead", finished_at=ago(60), error=error),
        "deferred": insert_jobs(admin, tenant, "read.interactive", state="deferred", run_at=ago(-60), reason="budget"),
        "orphaned": insert_jobs(admin, tenant, "import.bulk", state="waiting", ready_at=ago(600)),
        "abandoned": insert_jobs(
            admin, tenant, "import.bulk", state="running", due_at=ago(90), started_at=ago(120), lease_owner="x"
        ),
        "overrunning": insert_jobs(
            admin, tenant, "import.bulk", state="running", due_at=ago(-20), deadline_at=ago(90), started_at=ago(120)
        ),
    }
    parent = insert_jobs(admin, tenant, "import.bulk", state="waiting", ready_at=ago(600))[0]
    insert_jobs(admin, tenant, "import.bulk", parent_id=parent, ready_at=ago(1))
    report = site.examine()
    assert {job.trouble: [UUID(job.job)] for job in report.stuck} == stuck
    assert causes(report) == ["stuck-jobs"]
    assert [job.detail for job in report.stuck if job.trouble == "dead"] == ["it cannot be done"]


def test_the_command_prints_json_and_words(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in site.settings.items():
        monkeypatch.setenv(f"MUNIMENT_{name.upper()}", value)
    monkeypatch.setenv("MUNIMENT_DATA_DIR", "/nowhere")
    app = typer.Typer()
    app.command()(doctor)
    healthy = CliRunner().invoke(app)
    assert healthy.exit_code == 0, healthy.output
    assert "unknown to this command" in healthy.output
    monkeypatch.setenv("MUNIMENT_API_KEY", "mun_" + "x" * 43)
    sick = CliRunner().invoke(app, ["--json"])
    assert sick.exit_code == 1
    assert json.loads(sick.output)["causes"] == ["wrong-key"]
    words = CliRunner().invoke(app)
    assert words.exit_code == 1
    assert "Found: wrong-key." in words.output


def test_without_a_database_it_refuses() -> None:
    with pytest.raises(Exception, match="MUNIMENT_DATABASE_URL is not set"):
        examine(Settings())
