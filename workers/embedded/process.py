"""One foreground program as our direct child, which the kernel ends when we end.

On Linux the child asks for a death signal (PR_SET_PDEATHSIG). It is sent when the *thread* that started the child
ends, so children are started from the main thread only. Elsewhere a small watchdog process does the same.
"""

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from core.clock import monotonic
from workers.embedded import watchdog
from workers.embedded.errors import CannotStart
from workers.embedded.identity import SERVER_ENV, RunAs

PR_SET_PDEATHSIG = 1
LOCK_S = 10.0  # an earlier server, whose owner was killed, may take this long to shut down
KILL_S = 10.0
POLL_S = 0.01
TAIL_BYTES = 4000
DIRECT = RunAs()


class Child:
    """A started program. Only ever signals the process it started itself, which stays unreaped until it is done."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, log_start: int, death_signal: signal.Signals
    ) -> None:
        self._process = process
        self._log = log
        self._log_start = log_start
        self._watchdog = None if sys.platform == "linux" else start_watchdog(process.pid, death_signal)

    @classmethod
    def start(
        cls,
        command: Sequence[str | Path],
        *,
        log: Path,
        death_signal: signal.Signals = signal.SIGTERM,
        run_as: RunAs = DIRECT,
        stdin: bytes = b"",
        env: Mapping[str, str] = SERVER_ENV,
    ) -> "Child":
        """Start `command` in `/`, its output appended to `log`, in a session of its own (Ctrl-C is for its owner).

        `stdin` (at most a few kB) is given to it and closed. The program and all it starts hold a lock on `log` until
        the last of them is gone; CannotStart when somebody else still does after 10 s, or when it cannot be executed.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start children from the main thread: the death signal follows the starting thread")
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor, log)
            log_start = os.fstat(descriptor).st_size
            process = subprocess.Popen(
                [*run_as.prefix, *command],
                cwd="/",
                env=dict(env),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                start_new_session=True,
                user=run_as.uid,
                group=run_as.gid,
                extra_groups=None if run_as.uid is None else [],
                # Runs after the change of user, which would clear the death signal.
                preexec_fn=_death_signal(death_signal) if sys.platform == "linux" else None,  # noqa: PLW1509
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotStart(f"{command[0]} cannot be started: {error}") from error
        finally:
            os.close(descriptor)
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin)
        return cls(process, log, log_start, death_signal)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status (negative: the signal), or None while it runs."""
        return self.wait(0)

    def wait(self, timeout: float) -> int | None:
        """As `poll`, after waiting up to `timeout` seconds for the end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        if self._process.returncode is not None:
            self._end_watchdog()
        return self._process.returncode

    def await_ready(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return once `ready()` holds. When the program ends or `timeout` seconds pass first, stop it and raise
        CannotStart with the end of its log."""
        deadline = monotonic() + timeout
        try:
            while (status := self.wait(POLL_S)) is None:
                if ready():
                    return
                if monotonic() > deadline:
                    raise CannotStart(f"Not ready after {timeout:.0f} s. {self.tail()}")
        except BaseException:  # Ctrl-C included: nobody else knows of this child yet
            self.stop(signal.SIGKILL, KILL_S)
            raise
        raise CannotStart(f"Ended at once with status {status}. {self.tail()}")

    def stop(self, first: signal.Signals, timeout: float) -> int:
        """Send `first`, after `timeout` seconds SIGKILL; the exit status. Harmless when it has ended already."""
        if self.poll() is None:
            self._process.send_signal(first)
            if self.wait(timeout) is None:
                self._process.kill()
                self._process.wait(KILL_S)
        self._end_watchdog()
        return self._process.returncode

    def tail(self) -> str:
        """The end of what this run wrote to its log."""
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace").strip()
        return f"{self._log} says:\n{text}" if text else f"{self._log} says nothing."

    def _end_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait(KILL_S)
            self._watchdog = None


def start_watchdog(pid: int, death_signal: signal.Signals) -> subprocess.Popen[bytes]:
    """A process that sends `death_signal` to `pid` when this process is gone."""
    arguments = [str(number) for number in (os.getpid(), pid, int(death_signal))]
    return subprocess.Popen(
        [sys.executable, "-I", watchdog.__file__, *arguments],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _death_signal(number: signal.Signals) -> Callable[[], None]:
    # All that needs memory or a lock happens here, before the fork.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    owner = os.getpid()

    def ask() -> None:
        # An owner that died before the call sends nothing: end at once.
        if prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0 or os.getppid() != owner:
            os._exit(126)

    return ask


def _lock(descriptor: int, log: Path) -> None:
    """Take the lock that every process writing to `log` shares through its inherited descriptor."""
    deadline = monotonic() + LOCK_S
    waiter = threading.Event()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if monotonic() > deadline:
                raise CannotStart(
                    f"Another server still runs in {log.parent}: stop it or choose another folder."
                ) from None
        waiter.wait(POLL_S)


def how_it_ended(status: int) -> str:
    """For a person; `status` as `Child.poll` gives it."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
