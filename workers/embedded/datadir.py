"""The folder of one embedded stack: servers, logs, keys, and who runs it now."""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event

from core.clock import monotonic
from core.ids import token
from workers.embedded.errors import CannotStart

ROLES = ("owner", "app", "relay", "exporter")
LOCK_S = 1.0  # who only looks holds the lock for a moment
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Running:
    """Where a running stack is found; `database_url` is the owner's, for the commands that speak to Postgres. `models`: its
    settings of models, by field name."""

    pid: int
    url: str
    database_url: str
    redis_url: str
    models: Mapping[str, str] = field(default_factory=dict[str, str])


class DataDir:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    @property
    def key_file(self) -> Path:
        return self.path / "key"

    @property
    def operator_key_file(self) -> Path:
        return self.path / "operator-key"

    @property
    def _running_file(self) -> Path:
        return self.path / "running.json"

    def log(self, name: str) -> Path:
        """The log of one of our own processes; the servers have theirs in their folders."""
        return self.path / "logs" / f"{name}.log"

    def take(self) -> None:
        """Makes the folder where it is missing and takes it for this process. Raises CannotStart when another has it."""
        try:
            # Root's servers run as `nobody`, who must get through to their own folders; every file in here is 600.
            self.path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
            (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CannotStart(f"The data folder {self.path} cannot be used: {error}") from error
        deadline = monotonic() + LOCK_S
        while not _locked(descriptor):
            if monotonic() > deadline:
                os.close(descriptor)
                running = self._read_running()
                who = f" (process {running.pid}, {running.url})" if running else ""
                raise CannotStart(
                    f"Muniment already runs on {self.path}{who}. Stop it first, or choose another folder with --data-dir."
                )
            Event().wait(POLL_S)
        self._lock = descriptor

    def give_back(self) -> None:
        """The end of `take`; harmless without one."""
        if self._lock is not None:
            self._running_file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def announce(self, running: Running) -> None:
        """For `running()` in other processes of the same user."""
        write_secret(self._running_file, json.dumps(asdict(running)))

    def running(self) -> Running | None:
        """The stack that runs on this folder now; None when none does, or it is not ours to see."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY)
        except OSError:
            return None
        try:
            # A stack that was killed leaves its file behind, but not its lock.
            return None if _locked(descriptor, fcntl.LOCK_SH) else self._read_running()
        finally:
            os.close(descriptor)

    def passwords(self) -> dict[str, str]:
        """The database passwords by role, made once."""
        file = self.path / "passwords.json"
        if not file.exists():
            write_secret(file, json.dumps({role: token() for role in ROLES}))
        passwords: dict[str, str] = json.loads(file.read_text("utf-8"))
        return passwords

    def _read_running(self) -> Running | None:
        try:
            return Running(**json.loads(self._running_file.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def read_key(file: Path) -> str | None:
    """The key in a file; None when there is no such file or it is not ours to read."""
    try:
        return file.read_text("utf-8").strip() or None
    except OSError:
        return None


def write_secret(file: Path, text: str) -> None:
    """Writes a file that only its owner can read: whole or not at all."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    part.rename(file)


def _locked(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
