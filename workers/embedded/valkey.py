"""A private Valkey (Redis-compatible), on loopback."""

import signal
import socket
from pathlib import Path

from workers.embedded import carriers
from workers.embedded.carriers import Carrier
from workers.embedded.folder import ServerFolder
from workers.embedded.ports import LOOPBACK
from workers.embedded.process import Child
from workers.embedded.server import Server

START_S = 60.0  # loading its data included
PROBE_S = 1.0


class Valkey(Server):
    """It never evicts: a full memory refuses writes instead of losing wake-ups unseen.

    `persistent=False` keeps nothing (tests).
    """

    sources = carriers.VALKEY
    program = "valkey-server"
    stop_signal = signal.SIGTERM
    stop_s = 15.0

    def __init__(
        self, data_dir: Path, *, port: int | None = None, persistent: bool = True, carrier: Carrier | None = None
    ) -> None:
        super().__init__(data_dir, port=port, carrier=carrier)
        self._persistent = persistent

    @property
    def url(self) -> str:
        return f"redis://:{self.running.folder.password}@{LOOPBACK}:{self.port}/0"  # the password is URL-safe

    def _launch(self, folder: ServerFolder, carrier: Carrier, port: int) -> Child:
        settings = {
            "bind": LOOPBACK,
            "port": str(port),
            "dir": _quoted(str(folder.data("data"))),
            "requirepass": folder.password,
            "maxmemory-policy": "noeviction",
            "save": _quoted(""),
            "appendonly": "yes" if self._persistent else "no",
            "appendfsync": "everysec",
        }
        # Through stdin: a command line would show the password to every user of the machine.
        child = Child.start(
            [carrier.bin / self.program, "-"],
            log=folder.log,
            run_as=folder.run_as,
            stdin="".join(f"{name} {value}\n" for name, value in settings.items()).encode(),
        )
        child.await_ready(lambda: _answers(port, folder.password), START_S)
        return child


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _answers(port: int, password: str) -> bool:
    """Whether our server (it knows the password) takes commands: not before it listens nor while it loads."""
    try:
        with socket.create_connection((LOOPBACK, port), PROBE_S) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            with connection.makefile("rb") as replies:
                return replies.readline() == b"+OK\r\n" and replies.readline() == b"+PONG\r\n"
    except OSError:
        return False
