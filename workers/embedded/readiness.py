"""Whether the processes of a stack do their work yet."""

import http.client
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Event

from core.clock import monotonic
from core.store.database import Database
from workers.embedded.errors import CannotStart
from workers.embedded.process import Child

PROBE_S = 2.0
POLL_S = 0.05
LISTENING = "0A"
PATHS = ("/metrics", "/readyz")  # in this order: the exporter is ready once it could be scraped


def await_all(processes: Mapping[str, tuple[Child, str]], db: Database, timeout: float) -> None:
    """Returns when each answers: by HTTP where it has an address, else by its row in `processes`.

    Raises CannotStart with the end of the log when one ends or `timeout` seconds pass first.
    """
    waiting = dict(processes)
    deadline = monotonic() + timeout
    while True:
        working = _signed_in(db) if any(not address for _, address in waiting.values()) else set[int]()
        for name, (child, address) in list(waiting.items()):
            if (status := child.poll()) is not None:
                raise CannotStart(f"{name} ended at once with status {status}. {child.tail()}")
            if _serves(child.pid, address) if address else child.pid in working:
                del waiting[name]
        if not waiting:
            return
        if monotonic() > deadline:
            name, (child, _) = next(iter(waiting.items()))
            raise CannotStart(f"{name} is not ready after {timeout:.0f} s. {child.tail()}")
        Event().wait(POLL_S)


def _serves(pid: int, address: str) -> bool:
    """Whether this very process answers there: another stack may have taken the port first, and would answer too."""
    return _listens(pid, int(address.rpartition(":")[2])) and all(_answers(address, path) for path in PATHS)


def _listens(pid: int, port: int) -> bool:
    """Whether the process itself listens on the TCP port; True where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text("ascii").splitlines()[1:]
        entries = [line.split() for line in lines]  # 1: address:port in hexadecimal, 3: state, 9: inode
        sockets = {
            f"socket:[{entry[9]}]"
            for entry in entries
            if entry[3] == LISTENING and int(entry[1].rpartition(":")[2], 16) == port
        }
        return any(str(file.readlink()) in sockets for file in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # no /proc, or the process has ended or closed a file meanwhile
        return not Path("/proc/self").exists()


def _answers(address: str, path: str) -> bool:
    """Whether `GET path` at `host:port` says 200."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PROBE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _signed_in(db: Database) -> set[int]:
    """The pids on this host that have reported themselves."""
    with db.system() as tx:
        return {row["pid"] for row in tx.rows("processes") if row["host"] == socket.gethostname()}
