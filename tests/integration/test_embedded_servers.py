"""The embedded servers start, keep their data, stay apart, ask for a password, and say why they cannot start."""

import os
import re
import signal
import threading
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.services import short_folder, start_postgres, start_valkey
from workers.embedded import carriers, ports, process
from workers.embedded.carriers import Source
from workers.embedded.errors import CannotStart
from workers.embedded.postgres import Postgres
from workers.embedded.process import Child
from workers.embedded.valkey import Valkey


@pytest.fixture
def folder() -> Generator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture(scope="module")
def postgres() -> Generator[Postgres]:
    with short_folder() as path:
        server = start_postgres(path)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def valkey() -> Generator[Valkey]:
    with short_folder() as path:
        server = start_valkey(path)
        yield server
        server.stop()


def value(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, connect_timeout=5) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, connect_timeout=5, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def client(server: Valkey) -> "redis.Redis":
    return redis.Redis.from_url(server.url, socket_timeout=5, decode_responses=True)


def test_postgres_keeps_its_data_over_a_restart(folder: Path) -> None:
    server = Postgres(folder / "postgres")
    with server:
        execute(server.superuser_dsn, "CREATE TABLE kept (name text)", "INSERT INTO kept VALUES ('Ada')")
        assert value(server.superuser_dsn, "SHOW fsync") == "on"
    assert not server.alive
    with server:
        assert value(server.superuser_dsn, "SELECT name FROM kept") == "Ada"
    with Postgres(folder / "postgres") as another:
        assert value(another.superuser_dsn, "SELECT name FROM kept") == "Ada"


def test_postgres_recovers_after_it_was_killed(folder: Path) -> None:
    server = start_postgres(folder)
    execute(server.superuser_dsn, "CREATE TABLE kept (name text)", "INSERT INTO kept VALUES ('Ada')")
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    with server:
        assert value(server.superuser_dsn, "SELECT name FROM kept") == "Ada"


def test_a_pid_file_left_behind_does_not_stop_postgres_even_when_its_pid_lives_again(
    folder: Path, valkey: Valkey
) -> None:
    server = start_postgres(folder)
    pid_file = folder / "postgres" / "cluster" / "postmaster.pid"
    left_behind = pid_file.read_text()
    server.stop()
    # Valkey runs as the same user, so Postgres by itself would take it for the server that wrote the file.
    pid_file.write_text(left_behind.replace(left_behind.split("\n")[0], str(valkey.pid), 1))
    os.chown(pid_file, pid_file.parent.stat().st_uid, pid_file.parent.stat().st_gid)
    with server:
        assert value(server.superuser_dsn, "SELECT 1") == 1
    assert valkey.alive


def test_a_cluster_half_made_is_made_anew(folder: Path) -> None:
    part = folder / "postgres" / "cluster.part"
    part.mkdir(parents=True)
    (part / "PG_VERSION").write_text("18\n")
    server = start_postgres(folder)
    assert value(server.superuser_dsn, "SELECT 1") == 1
    server.stop()
    assert not part.exists()


def test_valkey_keeps_its_data_over_a_restart(folder: Path) -> None:
    server = Valkey(folder / 'a "quoted" folder')
    with server, client(server) as connection:
        connection.set("kept", "Ada")
    assert not server.alive
    with server, client(server) as connection:
        assert connection.get("kept") == "Ada"


def test_valkey_without_persistence_forgets(folder: Path) -> None:
    server = start_valkey(folder)
    with client(server) as connection:
        connection.set("gone", "Ada")
    server.stop()
    with server, client(server) as connection:
        assert connection.get("gone") is None
    assert list((folder / "valkey" / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("shared_buffers", "256MB"),
        ("jit", "off"),
        ("max_connections", "200"),
        ("max_wal_size", "4GB"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
        ("server_encoding", "UTF8"),
        ("data_checksums", "on"),
        ("fsync", "off"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "off"),
    ],
)
def test_postgres_is_set_up_for_the_stack(postgres: Postgres, setting: str, expected: str) -> None:
    assert value(postgres.superuser_dsn, f"SHOW {setting}") == expected


def test_postgres_has_pgvector_and_knows_unicode_letters(postgres: Postgres) -> None:
    execute(postgres.superuser_dsn, "CREATE EXTENSION IF NOT EXISTS vector")
    assert value(postgres.superuser_dsn, "SELECT '[1,2]'::vector <-> '[1,2]'::vector") == 0.0
    assert value(postgres.superuser_dsn, "SELECT lower('ÉÖΣ')") == "éöσ"
    assert value(postgres.superuser_dsn, "SELECT 'Z' < 'a'") is True  # by code point


def test_valkey_never_evicts(valkey: Valkey) -> None:
    with client(valkey) as connection:
        assert connection.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert connection.config_get("bind") == {"bind": "127.0.0.1"}


def test_a_persistent_valkey_appends_every_second(folder: Path) -> None:
    with Valkey(folder / "valkey") as server, client(server) as connection:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
        assert connection.config_get(*wanted) == wanted


def test_a_role_with_an_awkward_name_and_password_connects(postgres: Postgres) -> None:
    execute(postgres.superuser_dsn, """CREATE ROLE "o'r/k@er" LOGIN PASSWORD 'p@ss/w:rd %20?'""")
    assert value(postgres.dsn("o'r/k@er", "p@ss/w:rd %20?", "postgres"), "SELECT current_user") == "o'r/k@er"


def test_both_servers_ask_for_a_password(postgres: Postgres, valkey: Valkey) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.dsn("postgres", "guess", "postgres"), connect_timeout=5)
    with (
        redis.Redis(port=valkey.port, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as connection,
        pytest.raises(redis.AuthenticationError),
    ):
        connection.ping()


def test_passwords_show_neither_in_modes_nor_on_command_lines(postgres: Postgres, valkey: Valkey) -> None:
    for server in (postgres, valkey):
        own = server.running.folder
        assert own.password_file.stat().st_mode & 0o777 == 0o600
        assert own.log.stat().st_mode & 0o777 == 0o600
        assert own.path.stat().st_mode & 0o066 == 0
        if Path("/proc/self").exists():
            assert own.password not in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert postgres.running.folder.password != valkey.running.folder.password


def test_two_stacks_run_side_by_side(folder: Path, postgres: Postgres, valkey: Valkey) -> None:
    other_postgres, other_valkey = start_postgres(folder), start_valkey(folder)
    try:
        assert len({postgres.port, valkey.port, other_postgres.port, other_valkey.port}) == 4
        execute(other_postgres.superuser_dsn, "CREATE TABLE only_here ()")
        assert value(postgres.superuser_dsn, "SELECT to_regclass('only_here')") is None
        with client(other_valkey) as one, client(valkey) as two:
            one.set("only_here", "1")
            assert two.get("only_here") is None
    finally:
        other_valkey.stop()
        other_postgres.stop()
    assert postgres.alive
    assert valkey.alive


def test_a_folder_in_use_is_refused(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOCK_S", 0.05)
    with pytest.raises(CannotStart, match="Another server still runs in"):
        Valkey(valkey.running.folder.path).start()
    assert valkey.alive


def test_a_wanted_port_is_taken_or_the_reason_given(folder: Path, valkey: Valkey) -> None:
    with pytest.raises(CannotStart, match="Address already in use"):
        Valkey(folder / "valkey", port=valkey.port).start()
    wanted = ports.free_port()
    with Valkey(folder / "valkey", port=wanted) as server, client(server) as connection:
        assert server.port == wanted
        assert connection.ping()


def test_a_free_port_that_somebody_took_first_is_given_up(
    folder: Path, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ports.free_port()
    offered = iter([valkey.port, free])
    monkeypatch.setattr(ports, "free_port", lambda: next(offered))
    with Valkey(folder / "valkey") as server:
        assert server.port == free


def test_a_failed_start_shows_the_end_of_the_log_of_this_start(folder: Path) -> None:
    server = start_postgres(folder)
    server.stop()
    with (folder / "postgres" / "cluster" / "postgresql.conf").open("a") as file:
        file.write("\nnonsense = 1\n")
    with pytest.raises(CannotStart, match='unrecognized configuration parameter "nonsense"') as caught:
        server.start()
    assert "database system is shut down" not in str(caught.value)  # said by the start before
    assert not server.alive


def test_a_missing_carrier_names_the_extra_to_install() -> None:
    sources = (Source("no-such-server", "no_such_server", "bin/postgres"),)
    with pytest.raises(CannotStart, match=re.escape('no-such-server is not installed. Run: pip install "muniment[emb')):
        carriers.find(sources)


def test_the_second_carrier_is_found_when_the_first_is_missing() -> None:
    found = carriers.find((Source("no-such-server", "no_such_server", "bin/postgres"), *carriers.POSTGRES))
    assert (found.bin / "initdb").is_file()
    assert re.match(r"\d+\.", found.version)


def test_starting_twice_and_asking_before_the_start_are_mistakes(valkey: Valkey, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="already started"):
        valkey.start()
    with pytest.raises(RuntimeError, match="not started"):
        _ = Postgres(folder / "postgres").superuser_dsn
    Postgres(folder / "postgres").stop()  # harmless


def test_a_server_that_never_gets_ready_is_stopped(folder: Path) -> None:
    child = Child.start(["/bin/sh", "-c", "echo waiting; exec sleep 600"], log=folder / "log")
    with pytest.raises(CannotStart, match=r"(?s)Not ready after 0 s.*waiting"):
        child.await_ready(lambda: False, 0.3)
    assert child.poll() == -signal.SIGKILL


def test_a_server_that_ignores_its_stop_signal_is_killed(folder: Path) -> None:
    child = Child.start(["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"], log=folder / "log")
    child.await_ready(lambda: "deaf" in child.tail(), 10)
    assert child.stop(signal.SIGTERM, 0.2) == -signal.SIGKILL


def test_children_are_started_from_the_main_thread_only(folder: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            Child.start(["/bin/true"], log=folder / "log")
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(10)
    assert "main thread" in str(errors[0])
