"""The queues that the spine is measured against, each with the same three verbs and the same clock.

Method, the same for all: `enqueue(n)` no-op tasks from this process, then `start()` the workers and watch how many are
`left`; the rate is taken between 90 % and 10 % left, so that neither start-up nor the last stragglers are in it. Tasks
store no result. Workers are processes of their own.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[3]
POLL_SECONDS = 0.1
STOP_SECONDS = 20.0


class Peer(Protocol):
    """`settings` is what a reader needs to judge the figure."""

    name: str
    settings: str

    def enqueue(self, count: int) -> None: ...

    def left(self) -> int:
        """Tasks not finished yet."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Drained:
    """`per_second`: tasks a second between 90 % and 10 % left; `samples` how often `left` was asked in between."""

    per_second: float
    seconds: float
    samples: int


def measure(peer: Peer, count: int, *, timeout: float = 120.0) -> Drained:
    """Enqueue, start, drain, stop. Raises RuntimeError when it takes longer than `timeout` seconds."""
    peer.enqueue(count)
    if (found := peer.left()) != count:
        raise RuntimeError(f"{peer.name}: {found} of {count} tasks were queued")
    try:
        peer.start()
        drained = drain(peer.left, count, timeout=timeout)
        deadline = time.monotonic() + timeout
        while peer.left():  # nothing may be left for the next round
            if time.monotonic() > deadline:
                raise RuntimeError(f"{peer.name}: {peer.left()} tasks do not end")
            time.sleep(POLL_SECONDS)
        return drained
    finally:
        peer.stop()


def drain(left: Callable[[], int], count: int, *, timeout: float) -> Drained:
    """Watch `left` fall from `count` to 0. The two crossings are interpolated between samples."""
    marks = [count * 0.9, count * 0.1]
    crossed: list[float] = []
    samples = 0
    before, before_at = count, time.monotonic()
    deadline = before_at + timeout
    while len(crossed) < 2:
        time.sleep(POLL_SECONDS)
        now_left, now = left(), time.monotonic()
        samples += bool(crossed)
        while len(crossed) < 2 and now_left <= marks[len(crossed)]:
            share = (before - marks[len(crossed)]) / (before - now_left)
            crossed.append(before_at + share * (now - before_at))
        before, before_at = now_left, now
        if now > deadline:
            raise RuntimeError(f"{now_left} of {count} tasks left after {timeout:.0f} s")
    seconds = crossed[1] - crossed[0]
    return Drained(per_second=(marks[0] - marks[1]) / seconds, seconds=seconds, samples=samples)


class Process:
    """A Python program of the benchmark as a subprocess, ended by its own id."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def complaint(self) -> str:
        """The end of what it wrote to standard error."""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-2_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self, still: bool) -> None:
        """Stands still, or goes on."""
        self._process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class HttpServer(Process):
    """An ASGI application factory on a free loopback `port`, with the product's loop and protocol (api/serve.py)."""

    settings = "uvicorn, uvloop, httptools (api/protocol.py), one process; all sides behind it"

    def __init__(self, factory: str, env: Mapping[str, str], *, timeout: float = 30.0) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        flags = ["--loop", "uvloop", "--http", "api.protocol:HttpProtocol", "--no-access-log", "--log-level", "warning"]
        super().__init__(["-m", "uvicorn", factory, "--factory", "--port", str(self.port), *flags], env)
        deadline = time.monotonic() + timeout
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if not self.alive or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"{factory} does not answer: {self.complaint}") from None
                time.sleep(POLL_SECONDS)
