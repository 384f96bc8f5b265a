"""`muniment up` as a person runs it: Ctrl-C, a killed parent, a second one, its data, its logs."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from tests.cli import COMMAND, all_gone, environment, eventually, muniment, unlocked
from tests.services import short_folder
from workers.embedded.datadir import DataDir
from workers.embedded.ports import free_port

START_S = 60


@contextmanager
def up(data_dir: Path, output: Path, *more: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`muniment up` in the background, once it says that all runs."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMAND, "up", "--data-dir", str(data_dir), *more],
            env=environment(),
            cwd="/",
            stdout=stream,
            stderr=stream,
        )
    try:
        started = eventually(lambda: "Logs follow" in output.read_text() or process.poll() is not None, seconds=START_S)
        assert started, output.read_text()
        assert process.poll() is None, output.read_text()
        yield process
    finally:
        process.kill()
        process.wait(20)
        assert eventually(lambda: all_gone(data_dir))


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as path:
        yield path


@pytest.mark.chaos
def test_up_keeps_data_over_a_kill_and_leaves_nothing_behind(folder: Path) -> None:
    data, env = folder / "data", environment(data_dir=str(folder / "data"))
    with up(data, folder / "first") as first:
        assert "tenant `default`" in (folder / "first").read_text()
        written = muniment("write", stdin='{"text": "The boat is called Ada.", "id": "boat"}', env=env)
        assert written.returncode == 0, written.stderr
        tenants = muniment("tenants", "list", "--json", env=env)
        assert '"name": "default"' in tenants.stdout, "the data folder leads to Postgres too"

        second = muniment("up", "--data-dir", str(data), env=env)
        assert second.returncode == 1
        assert f"already runs on {data} (process {first.pid}, " in second.stderr

        os.kill(first.pid, signal.SIGKILL)
        first.wait(20)
        assert eventually(lambda: all_gone(data)), "a process outlived its killed parent"
        assert DataDir(data).running() is None

    with up(data, folder / "again") as again:
        shown = muniment("records", "show", "boat", env=env)
        assert '"content":"The boat is called Ada."' in shown.stdout, shown.stderr
        again.send_signal(signal.SIGINT)
        assert again.wait(40) == 0
        assert all_gone(data), "Ctrl-C left a process running"
        assert (folder / "again").read_text().endswith(f"Stopped. The data stays in {data}.\n")


@pytest.mark.chaos
def test_up_shows_logs_and_restarts_and_ends_at_sigterm(folder: Path) -> None:
    data, output, port = folder / "data", folder / "output", free_port()
    with up(data, output, "--port", str(port)) as process:
        (told,) = [line for line in output.read_text().splitlines() if line.startswith("API ")]
        assert told.split() == ["API", f"http://127.0.0.1:{port}"]
        assert "is taken" not in output.read_text(), "a port that was asked for needs no excuse"
        relay = next(line.split() for line in output.read_text().splitlines() if line.startswith("relay "))
        os.kill(int(relay[1]), signal.SIGKILL)
        assert eventually(lambda: "relay runs again" in output.read_text())
        assert eventually(lambda: "the relay leads" in output.read_text()), "the new relay's log is not shown"
        lines = output.read_text().splitlines()
        assert any(line.startswith("muniment   │ relay (process") and "SIGKILL" in line for line in lines)
        assert any(line.startswith("relay      │ ") for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
        assert all_gone(data)


@pytest.mark.chaos
def test_ctrl_c_while_it_starts_ends_it_cleanly(folder: Path) -> None:
    data = folder / "data"
    process = subprocess.Popen(
        [*COMMAND, "up", "--data-dir", str(data)], env=environment(), cwd="/", stdout=subprocess.PIPE
    )
    with process:
        assert eventually(lambda: (data / "postgres" / "log").exists())
        process.send_signal(signal.SIGINT)
        began = monotonic()
        assert process.wait(40) == 0
        assert monotonic() - began < 30
        assert process.stdout is not None
        assert b"Stopped." in process.stdout.read()
    # What initdb has started ends with it, a moment after its owner.
    assert eventually(lambda: all(unlocked(log) for log in data.glob("*/*log")))
