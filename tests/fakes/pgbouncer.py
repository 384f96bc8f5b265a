"""A real PgBouncer in transaction mode before a test's Postgres, where one is installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from workers.embedded.ports import LOOPBACK, free_port

MISSING = "PgBouncer is not installed (apt-get install pgbouncer)"


def find() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pooled(dsn: str, folder: Path, *, size: int = 2) -> Generator[str]:
    """The same database, role and password, through a pooler of `size` server connections."""
    program = find()
    assert program is not None
    parts = urlsplit(dsn)
    port = free_port()
    (folder / "users.txt").write_text(f'"{parts.username}" "{parts.password}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
* = host={parts.hostname} port={parts.port}
[pgbouncer]
listen_addr = {LOOPBACK}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
"""
    )
    command = [program, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # it refuses to run as root
        for path in (folder, folder / "users.txt", folder / "pgbouncer.ini"):
            shutil.chown(path, "nobody")
        command[1:1] = ["-u", "nobody"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 10
        while not _answers(port):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield parts._replace(netloc=f"{parts.username}:{parts.password}@{LOOPBACK}:{port}").geturl()
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0
