"""Runs the real `muniment` command, and tells whether its processes are gone."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic

ROOT = Path(__file__).parents[1]
COMMAND = (sys.executable, "-P", "-m", "api.cli.main")


def environment(**settings: str) -> dict[str, str]:
    """Ours without any setting of Muniment, plus those given by field name."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    return {**base, "PYTHONPATH": str(ROOT), **{f"MUNIMENT_{name.upper()}": value for name, value in settings.items()}}


def muniment(
    *arguments: str, stdin: str | bytes = b"", env: Mapping[str, str] | None = None, timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    """The command to its end, with its output as text."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=dict(env or environment()),
        cwd="/",
        timeout=timeout,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def eventually(holds: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = monotonic() + seconds
    while not holds():
        if monotonic() > deadline:
            return False
        Event().wait(0.02)
    return True


def unlocked(log: Path) -> bool:
    """No process that writes to the log is left: each holds the lock on it, a server's helpers too."""
    with log.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def all_gone(data_dir: Path) -> bool:
    """Nothing of the stack on this folder runs any more."""
    logs = [*(data_dir / "logs").glob("*.log"), *data_dir.glob("*/log")]
    assert len(logs) >= 2
    return all(unlocked(log) for log in logs)
