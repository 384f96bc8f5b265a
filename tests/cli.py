"""Runs the real `muniment` command, and tells whether its processes are gone."""

import fcntl
import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from threading import Event
from time import monotonic
from typing import cast
from unittest.mock import patch

from api.cli.main import main

ROOT = Path(__file__).parents[1]
COMMAND = (sys.executable, "-P", "-m", "api.cli.main")


def environment(**settings: str) -> dict[str, str]:
    """Ours without any setting of Muniment, plus those given by field name."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    return {**base, "PYTHONPATH": str(ROOT), **{f"MUNIMENT_{name.upper()}": value for name, value in settings.items()}}


def muniment(
    *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    """The command to its end, with its output as text."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin.encode(),
        capture_output=True,
        env=dict(env or environment()),
        cwd="/",
        timeout=timeout,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def invoke(
    *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """As `muniment`, within this process: quicker, for commands that end by themselves and start nothing."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    status = 0
    with (
        patch.dict(os.environ, env or environment(), clear=True),
        patch.object(sys, "argv", ["muniment", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
    printed, noted = (cast("io.BytesIO", stream.buffer).getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess(arguments, status, printed, noted)


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
