"""A private PostgreSQL with pgvector, on loopback."""

import os
import shutil
import signal
from pathlib import Path
from urllib.parse import quote

from workers.embedded import carriers
from workers.embedded.carriers import Carrier
from workers.embedded.errors import CannotStart
from workers.embedded.folder import ServerFolder
from workers.embedded.ports import LOOPBACK
from workers.embedded.process import Child
from workers.embedded.server import Server

SUPERUSER = "postgres"
INITDB_S = 120.0
START_S = 120.0  # recovery after a crash included

# The builtin provider sorts by code point and knows Unicode's letters, whatever locales the machine has.
CLUSTER = (
    f"--username={SUPERUSER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",  # a socket's path must fit in 107 bytes; TCP always works
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "jit": "off",
}
# synchronous_commit stays on: without fsync it costs nothing, and killing the server then loses no commit.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class Postgres(Server):
    """`durable=False` is for tests: it may lose everything when the machine stops, nothing when only it is killed."""

    sources = carriers.POSTGRES
    program = "postgres"
    stop_signal = signal.SIGINT  # fast shutdown: disconnects clients, writes a checkpoint
    stop_s = 30.0

    def __init__(
        self, data_dir: Path, *, port: int | None = None, durable: bool = True, carrier: Carrier | None = None
    ) -> None:
        super().__init__(data_dir, port=port, carrier=carrier)
        self._durable = durable

    @property
    def superuser_dsn(self) -> str:
        return self.dsn(SUPERUSER, self.running.folder.password, "postgres")

    def dsn(self, role: str, password: str, database: str) -> str:
        """A libpq URL for any role and database of this server."""
        user, secret, name = (quote(part, safe="") for part in (role, password, database))
        return f"postgresql://{user}:{secret}@{LOOPBACK}:{self.port}/{name}"

    def _initialise(self, folder: ServerFolder, carrier: Carrier) -> None:
        """Make the cluster where there is none: in a folder aside, so that a half-made one is never taken for it."""
        if (folder.path / "cluster").exists():
            return
        shutil.rmtree(folder.path / "cluster.part", ignore_errors=True)
        part = folder.data("cluster.part")
        command = [carrier.bin / "initdb", "--pgdata", part, f"--pwfile={folder.password_file}", *CLUSTER]
        if not self._durable:
            command.append("--no-sync")
        child = Child.start(command, log=folder.log, run_as=folder.run_as)
        status = child.wait(INITDB_S)
        if status != 0:
            child.stop(signal.SIGKILL, 0)
            raise CannotStart(f"initdb failed ({'too slow' if status is None else f'status {status}'}). {child.tail()}")
        part.rename(folder.path / "cluster")

    def _launch(self, folder: ServerFolder, carrier: Carrier, port: int) -> Child:
        self._initialise(folder, carrier)
        cluster = folder.data("cluster")
        _forget_dead_server(cluster)
        settings = {**SETTINGS, "port": str(port), **({} if self._durable else NOT_DURABLE)}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        child = Child.start(
            [carrier.bin / self.program, "-D", cluster, *flags],
            log=folder.log,
            run_as=folder.run_as,
            death_signal=self.stop_signal,
        )
        child.await_ready(lambda: _is_ready(cluster, child.pid), START_S)
        return child


def _is_ready(cluster: Path, pid: int) -> bool:
    """Whether the server says so in its pid file (first line: pid, eighth: state), as pg_ctl asks.

    A connection to the port would not prove whose server answers.
    """
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _forget_dead_server(cluster: Path) -> None:
    """Remove the pid file of a server that is gone, even if its pid now belongs to another program.

    Postgres refuses to start when *any* process of its user has that pid, common where pids are few (containers).
    When in doubt the file stays and Postgres decides; its own check of shared memory stands in any case.
    """
    pid_file = cluster / "postmaster.pid"
    try:
        pid = int(pid_file.read_text(encoding="utf-8").split("\n", 1)[0])
        os.kill(pid, 0)
        if Path(f"/proc/{pid}/cwd").readlink() == cluster.resolve():
            return
    except ProcessLookupError:
        pass  # no such process
    except (ValueError, OSError):
        return  # no pid file, an odd one, another user's process, or no /proc
    pid_file.unlink(missing_ok=True)
