"""Whom the embedded servers run as, and that none of them outlives its owner, however the owner ends."""

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from threading import Event
from time import monotonic

import psycopg
import pytest

from tests.services import short_folder, start_postgres, start_valkey
from workers.embedded import carriers, identity
from workers.embedded.carriers import Carrier
from workers.embedded.errors import CannotStart
from workers.embedded.identity import NAMESPACE
from workers.embedded.postgres import Postgres

ROOT = Path(__file__).parents[2]
ENV = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

STACK = """
import json, sys
from pathlib import Path
from tests.services import start_postgres, start_valkey

folder = Path(sys.argv[1])
postgres, valkey = start_postgres(folder), start_valkey(folder)
print(json.dumps({"pids": [postgres.pid, valkey.pid], "dsn": postgres.superuser_dsn}), flush=True)
sys.stdin.read()
"""

WATCHED = """
import json, subprocess, sys, signal
from workers.embedded.process import start_watchdog

sleeper = subprocess.Popen(["sleep", "600"])
watchdog = start_watchdog(sleeper.pid, signal.SIGTERM)
print(json.dumps({"pids": [sleeper.pid, watchdog.pid]}), flush=True)
sys.stdin.read()
"""


def _namespaces() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="drops root, so needs to be root")
needs_namespaces = pytest.mark.skipif(not _namespaces(), reason="this machine refuses user namespaces")
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")


@pytest.fixture
def folder() -> Generator[Path]:
    with short_folder() as path:
        yield path


@pytest.fixture
def closed_folder(folder: Path) -> Path:
    """A folder as below a 700 home: only its owner gets in."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    return home


def eventually(holds: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = monotonic() + seconds
    while not holds():
        if monotonic() > deadline:
            return False
        Event().wait(0.02)
    return True


def gone(pid: int) -> bool:
    """Ended, reaped by whoever inherited it or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def unlocked(log: Path) -> bool:
    """No process of the server is left: each holds the lock on the log, Postgres's backends too."""
    with log.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def start_owner(script: str, *arguments: str, prefix: Sequence[str] = ()) -> tuple["subprocess.Popen[str]", dict]:
    owner = subprocess.Popen(
        [*prefix, sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=ENV,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    return owner, json.loads(owner.stdout.readline())


def end(owner: "subprocess.Popen[str]") -> None:
    owner.kill()
    owner.communicate(timeout=20)


def uids(pid: int) -> set[int]:
    """Real, effective, saved and file system uid, as seen from here."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {int(word) for word in next(line for line in lines if line.startswith("Uid:")).split()[1:]}


@needs_proc
@pytest.mark.chaos
@pytest.mark.parametrize(
    ("place", "prefix"),
    [
        pytest.param("folder", (), id="usual"),
        pytest.param("closed_folder", (), id="root-in-a-700-home", marks=[needs_root, needs_namespaces]),
        pytest.param("closed_folder", NAMESPACE, id="ordinary-user", marks=[needs_root, needs_namespaces]),
    ],
)
def test_no_server_outlives_a_killed_owner_and_the_next_owner_finds_the_data(
    place: str, prefix: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    data: Path = request.getfixturevalue(place)
    owner, facts = start_owner(STACK, str(data), prefix=prefix)
    try:
        with psycopg.connect(facts["dsn"], connect_timeout=5, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (name text)")
            connection.execute("INSERT INTO kept VALUES ('Ada')")
            assert not any(gone(pid) for pid in facts["pids"])
            os.kill(owner.pid, signal.SIGKILL)
            for pid in facts["pids"]:
                assert eventually(lambda pid=pid: gone(pid)), f"{pid} outlived its owner"
            for server in ("postgres", "valkey"):
                assert eventually(lambda server=server: unlocked(data / server / "log")), f"a child of {server} lives"
    finally:
        end(owner)
    assert "database system is shut down" in (data / "postgres" / "log").read_text()

    owner, facts = start_owner(STACK, str(data), prefix=prefix)
    try:
        with psycopg.connect(facts["dsn"], connect_timeout=5) as connection:
            assert connection.execute("SELECT name FROM kept").fetchone() == ("Ada",)
    finally:
        end(owner)
    assert eventually(lambda: unlocked(data / "postgres" / "log"))
    assert eventually(lambda: unlocked(data / "valkey" / "log"))


@needs_proc
@pytest.mark.chaos
def test_where_there_is_no_death_signal_the_watchdog_ends_the_child() -> None:
    owner, facts = start_owner(WATCHED)
    sleeper, watchdog = facts["pids"]
    assert not gone(sleeper)
    end(owner)
    assert eventually(lambda: gone(sleeper))
    assert eventually(lambda: gone(watchdog))


@needs_root
@needs_proc
def test_roots_servers_run_as_nobody_and_can_write_only_their_data(folder: Path) -> None:
    postgres, valkey = start_postgres(folder), start_valkey(folder)
    try:
        for server in (postgres, valkey):
            assert 0 not in uids(server.pid)
            own = server.running.folder.path
            assert own.stat().st_uid == 0
            assert own.stat().st_mode & 0o777 == 0o711
            assert (own / "log").stat().st_uid == 0
    finally:
        valkey.stop()
        postgres.stop()


@needs_root
@needs_namespaces
def test_data_below_a_700_folder_is_served_and_no_mode_outside_is_changed(closed_folder: Path) -> None:
    postgres, valkey = start_postgres(closed_folder), start_valkey(closed_folder)
    try:
        assert postgres.running.folder.run_as.prefix == NAMESPACE
        assert valkey.running.folder.run_as.prefix == NAMESPACE
        with psycopg.connect(postgres.superuser_dsn, connect_timeout=5) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        valkey.stop()
        postgres.stop()
    assert stat.S_IMODE(closed_folder.stat().st_mode) == 0o700


@needs_root
@needs_namespaces
def test_programs_below_a_700_folder_are_run_and_data_changes_hands_both_ways(
    folder: Path, closed_folder: Path
) -> None:
    open_carrier = carriers.find(carriers.POSTGRES[:1])
    package = open_carrier.bin.parents[1]
    # The programs find their libraries in the sibling folder.
    shutil.copytree(open_carrier.bin.parent, closed_folder / package.name / open_carrier.bin.parent.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), closed_folder / f"{package.name}.libs")
    programs = closed_folder / open_carrier.bin.relative_to(package.parent)
    closed_carrier = Carrier(open_carrier.name, open_carrier.version, programs)

    def names(carrier: Carrier, statement: str) -> tuple[str, ...]:
        with (
            Postgres(folder / "postgres", durable=False, carrier=carrier) as server,
            psycopg.connect(server.superuser_dsn, connect_timeout=5, autocommit=True) as connection,
        ):
            connection.execute(statement.encode())
            return server.running.folder.run_as.prefix

    assert names(closed_carrier, "CREATE TABLE kept (name text)") == NAMESPACE
    assert names(open_carrier, "INSERT INTO kept VALUES ('Ada')") == ()
    assert names(closed_carrier, "DELETE FROM kept") == NAMESPACE


@needs_root
def test_root_is_told_what_to_do_when_neither_way_works(closed_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "NAMESPACE", ("false",))
    with pytest.raises(
        CannotStart,
        match=r"(?s)as nobody: .*\bcd\b.*in a user namespace: exit status 1.*run as an ordinary user; or put",
    ):
        start_postgres(closed_folder)
