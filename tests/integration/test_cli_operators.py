"""The commands that speak to Postgres, on a database of their own."""

import json
from time import monotonic
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from core.ids import uuid7
from core.tenants.keys import authenticate, hash_key
from tests.cli import environment, invoke
from tests.conftest import PASSWORDS, TestDatabase
from workers.embedded.postgres import Postgres
from workers.queues import QUEUES


@pytest.fixture
def env(database: TestDatabase) -> dict[str, str]:
    return environment(database_url=database.dsn("owner"))


def run(env: dict[str, str], *arguments: str, status: int = 0) -> str:
    done = invoke(*arguments, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_tenants_are_made_listed_and_limited(env: dict[str, str]) -> None:
    made = json.loads(run(env, "tenants", "create", "acme", "--weight", "3", "--max-stored-bytes", "1000"))
    assert (made["name"], made["weight"], made["maxStoredBytes"]) == ("acme", 3, 1000)
    changed = json.loads(
        run(env, "tenants", "set", "acme", "--max-stored-bytes", "none", "--max-requests-per-second", "9")
    )
    assert "maxStoredBytes" not in changed
    assert (changed["id"], changed["weight"], changed["maxRequestsPerSecond"]) == (made["id"], 3, 9)
    assert json.loads(run(env, "tenants", "list", "--json"))["items"] == [changed]
    assert "acme" in run(env, "tenants", "list")
    assert "exists already" in run(env, "tenants", "create", "acme", status=1)
    assert "no tenant 'nobody'" in run(env, "tenants", "set", "nobody", "--weight", "2", status=1)
    assert "--weight" in run(env, "tenants", "set", "acme", "--weight", "1000", status=2)
    assert "--max-stored-bytes" in run(env, "tenants", "set", "acme", "--max-stored-bytes", "lots", status=2)
    run(env, "tenants", "set", "acme", status=2)


def test_caps_are_shown_and_set(env: dict[str, str]) -> None:
    run(env, "tenants", "create", "acme")
    caps = {row["provider"]: row for row in json.loads(run(env, "budget", "show", "--json"))["items"]}
    assert {name: row["cap"] for name, row in caps.items()} == {
        "jev": "10", "deepseek": "50", "openai": "5", "systemone": "10",
    }  # fmt: skip
    assert "2.5" in run(env, "budget", "set", "jev", "2.5")
    assert "0.1" in run(env, "budget", "set", "jev", "0.1", "--job")
    assert "acme" not in run(env, "budget", "set", "openai", "1", "--tenant", "acme")
    (row,) = json.loads(run(env, "budget", "show", "--tenant", "acme", "--json"))["items"]
    assert (row["scope"], row["provider"], row["cap"], row["spent"]) == ("tenant", "openai", "1", "0")
    run(env, "budget", "set", "openai", "none", "--tenant", "acme")
    (row,) = json.loads(run(env, "budget", "show", "--tenant", "acme", "--json"))["items"]
    assert "cap" not in row
    assert "always has a cap" in run(env, "budget", "set", "jev", "none", status=2)
    assert "no account" in run(env, "budget", "set", "local", "1", status=2)
    assert "amount" in run(env, "budget", "set", "jev", "much", status=2)
    assert "too small" in run(env, "budget", "set", "jev", "0.0000000000001", status=2)
    assert "no tenant 'nobody'" in run(env, "budget", "set", "jev", "1", "--tenant", "nobody", status=1)


def test_a_made_key_has_exactly_what_was_asked_for_until_it_is_revoked(
    env: dict[str, str], database: TestDatabase
) -> None:
    tenant = json.loads(run(env, "tenants", "create", "acme"))["id"]
    made = json.loads(
        run(env, "keys", "create", "acme", "--name", "agent", "--scope", "read", "--store", "journal", "--days", "2")
    )
    principal = authenticate(database.app, hash_key(made["secret"]))
    assert principal is not None
    assert principal.tenant_id == UUID(tenant)
    assert (principal.scopes, principal.stores) == ({"read"}, {"journal"})
    listed = json.loads(run(env, "keys", "list", tenant, "--json"))["items"]
    assert [key["id"] for key in listed] == [made["id"]]
    assert "secret" not in listed[0]
    assert "expiresAt" in listed[0]

    run(env, "keys", "revoke", made["id"])
    assert authenticate(database.app, hash_key(made["secret"])) is None
    assert "no such key" in run(env, "keys", "revoke", str(uuid7()), status=1)
    run(env, "keys", "revoke", made["secret"], status=2)
    assert "scopes" in run(env, "keys", "create", "acme", "--scope", "all", status=1)


def test_an_operator_key_belongs_to_no_tenant(env: dict[str, str], database: TestDatabase) -> None:
    made = json.loads(run(env, "keys", "create", "--operator", "--name", "on-call"))
    principal = authenticate(database.app, hash_key(made["secret"]))
    assert principal is not None
    assert principal.is_operator
    assert [key["id"] for key in json.loads(run(env, "keys", "list", "--operator", "--json"))["items"]] == [made["id"]]
    run(env, "keys", "create", "--operator", "--scope", "read", status=2)
    run(env, "keys", "create", "acme", "--operator", status=2)


def dead_job(database: TestDatabase, tenant: UUID, queue: str = "write.interactive") -> str:
    job = uuid7()
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(
            "insert into jobs (tenant_id, job_id, kind, queue, state, attempt, finished_at, payload_bytes, error)"
            " values (%s, %s, 'write', %s, 'dead', 5, now(), 2, '{\"detail\": \"it broke\"}')",
            (tenant, job, queue),
        )
        admin.execute("insert into job_payloads values (%s, %s, '{}')", (tenant, job))
    return str(job)


def states(database: TestDatabase) -> dict[str, str]:
    with psycopg.connect(database.admin) as admin:
        return {str(job): state for job, state in admin.execute("select job_id, state from jobs").fetchall()}


def test_dead_letters_are_listed_retried_and_purged(env: dict[str, str], database: TestDatabase, tenant: UUID) -> None:
    first, second, third = (dead_job(database, tenant) for _ in range(3))
    elsewhere = dead_job(database, tenant, "read.interactive")
    listed = json.loads(run(env, "queues", "dead", "write.interactive", "--json"))["items"]
    assert {job["id"] for job in listed} == {first, second, third}
    assert {job["tenant"] for job in listed} == {str(tenant)}
    assert "it broke" in run(env, "queues", "dead", "write.interactive", "--tenant", str(tenant))
    backlog = json.loads(run(env, "queues", "--json"))["queues"]
    assert [queue["queue"] for queue in backlog] == sorted(QUEUES), "no queue that nobody serves"
    assert {entry["queue"]: entry["deadJobs"] for entry in backlog}["write.interactive"] == 3

    assert run(env, "queues", "retry", "write.interactive", "--job", first).startswith("1 job goes back")
    assert states(database)[first] == "queued"
    assert invoke("queues", "purge", "write.interactive", stdin="n\n", env=env).returncode == 1
    assert run(env, "queues", "purge", "write.interactive", "--yes").startswith("2 dead jobs")
    assert states(database) == {first: "queued", elsewhere: "dead"}
    run(env, "queues", "dead", "no.such", status=2)


def test_queues_shows_the_backlog_and_who_works(env: dict[str, str], database: TestDatabase) -> None:
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute(
            "insert into processes (process_id, role, host, pid, queues) values (%s, 'worker-fast', 'here', 7, '{a,b}')",
            (uuid7(),),
        )
    shown = run(env, "queues")
    assert "write.interactive" in shown
    assert any(line.split()[:3] == ["worker-fast", "here", "7"] for line in shown.splitlines())
    processes = json.loads(run(env, "queues", "--json"))["processes"]
    assert [(process["role"], process["queues"]) for process in processes] == [("worker-fast", ["a", "b"])]


def test_migrate_makes_a_fleet_database_from_nothing(
    postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = f"fleet_{uuid7().hex}"
    admin = urlsplit(postgres.superuser_dsn)
    without_password = admin._replace(netloc=f"{admin.username}@{admin.hostname}:{admin.port}").geturl()
    env = environment(database_url=postgres.dsn("muniment_owner", PASSWORDS["owner"], name))
    passwords = tmp_path_factory.mktemp("secrets") / "passwords.json"
    passwords.write_text(json.dumps({role: PASSWORDS[role] for role in ("app", "relay", "exporter")}))
    command = ("migrate", "--bootstrap", without_password, "--passwords", str(passwords))
    try:
        said = run({**env, "PGPASSWORD": admin.password or ""}, *command)
        assert said.startswith("Applied 0001_spine")
        assert run(env, "migrate") == "Nothing was pending.\n"
        with psycopg.connect(postgres.dsn("muniment_app", PASSWORDS["app"], name)) as app:
            assert app.execute("select count(*) from stores").fetchone() == (0,)
    finally:
        with psycopg.connect(postgres.superuser_dsn, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)".encode())


def test_migrate_does_not_show_the_passwords_of_a_wrong_file(env: dict[str, str], tmp_path_factory) -> None:
    passwords = tmp_path_factory.mktemp("secrets") / "passwords.json"
    passwords.write_text('{"app": "hunter2", "boss": "hunter2"}')
    said = run(env, "migrate", "--bootstrap", "postgresql://x@127.0.0.1:1/x", "--passwords", str(passwords), status=2)
    assert "--passwords" in said
    assert "hunter2" not in said
    run(env, "migrate", "--passwords", str(passwords), status=2)


def test_a_missing_or_unknown_setting_is_named(database: TestDatabase) -> None:
    nothing = environment(data_dir="/no/such/folder")
    assert "MUNIMENT_DATABASE_URL is not set" in run(nothing, "tenants", "list", status=1)
    assert "MUNIMENT_DATABASE_URL is not set" in run(nothing, "worker", "fast", status=1)
    wrong = environment(database_ulr="x")
    assert "did you mean MUNIMENT_DATABASE_URL?" in run(wrong, "tenants", "list", status=1)


def test_a_wrong_setting_is_told_as_one(env: dict[str, str]) -> None:
    title = "A setting is wrong or missing (settings): "
    for name, value, told in (
        ("MUNIMENT_DATABSE_URL", "x", "MUNIMENT_DATABSE_URL is not a setting: did you mean MUNIMENT_DATABASE_URL?"),
        ("MUNIMENT_DATABASE_URL", "db", "MUNIMENT_DATABASE_URL: must begin with postgresql://"),
        ("MUNIMENT_POOL_SIZE", "many", "MUNIMENT_POOL_SIZE: must be a whole number"),
    ):
        assert run({**env, name: value}, "tenants", "list", status=1).startswith(title + told)
    bare = environment(data_dir="/nowhere")
    assert run(bare, "tenants", "list", status=1).startswith(f"{title}MUNIMENT_DATABASE_URL is not set")


def test_a_database_that_is_away_is_told_at_once_and_in_a_line(env: dict[str, str]) -> None:
    began = monotonic()
    said = run({**env, "MUNIMENT_DATABASE_URL": "postgresql://x@127.0.0.1:1/d"}, "tenants", "list", status=1)
    assert monotonic() - began < 5
    assert len(said.splitlines()) == 1
    assert "Postgres cannot be reached" in said
    assert "check MUNIMENT_DATABASE_URL" in said
