"""Redis flushed, Redis killed and restarted, Postgres killed and restarted, each under load: nothing lost, nothing twice."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.bench.http_client import Connection, request
from tests.bench.noop import GROUP
from tests.bench.report import Bar, Report, Sample
from tests.bench.stage import Stage, headers
from tests.fakes.fleet import until
from workers.embedded.server import Server

LOAD_SECONDS = 6.0
GATHERED = 50
"""Jobs whose wake-ups lie in Redis when it is disturbed."""
SETTLE_SECONDS = 90.0


def run(stage: Stage, report: Report, *, small: bool = False) -> None:
    disturbances: dict[str, Callable[[], None]] = {
        "FLUSHALL": lambda: _flush(stage),
        "Redis restart": lambda: _restart_valkey(stage),
        "Postgres restart": lambda: _restart_postgres(stage),
    }
    lost = twice = accepted = 0
    recovery: list[float] = []
    for name, disturb in list(disturbances.items())[: 1 if small else None]:
        stage.clear()
        found = _under_load(stage, name, disturb, settle=50.0 if small else SETTLE_SECONDS)
        accepted += found[0]
        lost += found[1]
        twice += found[2]
        recovery.append(found[3])
    settings = f"{accepted:,} accepted counter jobs; FLUSHALL, kill -9 of Redis, kill -9 of Postgres, restarts"
    report.samples.append(Sample("all done after the disturbance", "s", settings, recovery))
    report.bars += [
        Bar("lost", "accepted jobs lost", lost, "≤", 0),
        Bar("done_twice", "jobs done twice", twice, "≤", 0),
    ]


def _under_load(stage: Stage, name: str, disturb: Callable[[], None], *, settle: float) -> tuple[int, int, int, float]:
    """Accepted, lost, done twice, and seconds from the disturbance to the last effect."""
    _, secret = stage.tenant(f"losses-{name.replace(' ', '-').lower()}-{time.monotonic_ns()}")
    message = request("POST", "/v1/stores/journal/counter", headers=headers(secret), body=b"{}")
    accepted: list[bytes] = []
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        stack.enter_context(stage.relay())
        worker = stack.enter_context(stage.worker(GROUP))
        stop = threading.Event()
        clients = [threading.Thread(target=_write, args=(port, message, stop, accepted)) for _ in range(4)]
        for client in clients:
            client.start()
        time.sleep(LOAD_SECONDS / 3)
        # A worker that keeps up leaves nothing in Redis to be lost.
        worker.pause(True)
        until(lambda: stage.left() >= GATHERED, 30, "the jobs do not gather while their worker stands still")
        disturb()
        worker.pause(False)
        began = time.monotonic()
        time.sleep(LOAD_SECONDS * 2 / 3)
        stop.set()
        for client in clients:
            client.join()
        while stage.left() and time.monotonic() - began < settle:
            time.sleep(0.2)
        seconds = time.monotonic() - began
        with stage.admin() as admin:
            effects = admin.execute(b"select job_id::text, sum(effects) from bench_counters group by job_id").fetchall()
    done = {str(job): int(count) for job, count in effects}
    ids = {answer.decode() for answer in accepted}
    return len(ids), len(ids - done.keys()), sum(count > 1 for count in done.values()), seconds


def _write(port: int, message: bytes, stop: threading.Event, accepted: list[bytes]) -> None:
    """Asks until told to stop; only what was answered 202 counts as accepted."""
    connection = Connection(port)
    try:
        while not stop.is_set():
            try:
                status, answer, _ = connection.ask(message)
            except OSError:
                connection.close()
                time.sleep(0.1)
                connection = Connection(port)
                continue
            if status == 202:
                at = answer.index(b'"id":"') + 6
                accepted.append(answer[at : at + 36])
            else:
                time.sleep(0.05)
            time.sleep(0.004)
    finally:
        connection.close()


def _flush(stage: Stage) -> None:
    import redis

    with redis.Redis.from_url(stage.valkey.url, socket_timeout=10) as client:
        client.flushall()


def _restart_valkey(stage: Stage) -> None:
    """Killed, and back on the same port after a second."""
    _kill_and_restart(stage.valkey)


def _restart_postgres(stage: Stage) -> None:
    _kill_and_restart(stage.postgres)


def _kill_and_restart(server: Server) -> None:
    os.kill(server.pid, signal.SIGKILL)
    time.sleep(1.0)
    server.stop()
    server.start()
