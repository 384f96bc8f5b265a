"""Workers, relay and submitter of a test, in this process or as processes that can be killed."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from prometheus_client import CollectorRegistry

from core.faults import Faults
from core.ids import uuid7
from core.jobs import kinds as product
from core.jobs import service
from core.jobs.model import TERMINAL, Accepted, Job, JobRequest
from core.settings import Settings, child_environment, load
from tests.conftest import TestDatabase
from tests.fakes.kinds import ACTORS, KINDS
from workers.broker import WakeBroker
from workers.main import WorkerProcess
from workers.metrics import WorkerMetrics
from workers.relay import Relay
from workers.submit import Submitter

ROOT = Path(__file__).parents[2]
QUICK = {
    "lease_seconds": "3", "renew_seconds": "0.3", "sweep_seconds": "0.3", "relay_poll_seconds": "0.2",
    "relay_lease_seconds": "1.5", "resend_seconds": "12", "shutdown_seconds": "5",
}  # fmt: skip
"""The product's own clocks, faster."""


def until(found: Callable[[], Any], seconds: float = 20.0, what: object = "") -> Any:
    """What `found` answers once that is true; fails when it is not within the time."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what() if callable(what) else what}"
        time.sleep(0.01)
    return answer


class Fleet:
    """Started parts stop with the `with` block of `fleet`."""

    def __init__(self, database: TestDatabase, redis_url: str, tenant: UUID, stack: ExitStack, **more: str) -> None:
        self.database = database
        self.tenant = tenant
        self.redis_url = redis_url
        self.more = QUICK | more
        self._dsns = {role: database.dsn(role) for role in ("app", "relay")}
        self._kinds = product.kinds(self.settings()) | KINDS
        self._stack = stack
        self._submitter: Submitter | None = None

    def settings(self, role: str = "app", **more: str) -> Settings:
        return load({}, **self._given(role), **(self.more | more))

    def _given(self, role: str) -> dict[str, str]:
        return {"database_url": self._dsns[role], "redis_url": self.redis_url}

    # -- in this process ------------------------------------------------------------------------------------------------

    def worker(self, group: str = "fast", **more: str) -> WorkerProcess:
        process = WorkerProcess(self.settings(**more), group, more_kinds=KINDS, more_actors=ACTORS)
        process.start()
        self._stack.callback(process.stop)
        return process

    def relay(self, faults: str = "", **more: str) -> Relay:
        """Runs until the test ends, or until its `stop`."""
        broker = WakeBroker(self.redis_url)
        self._stack.callback(broker.close)
        metrics = WorkerMetrics(CollectorRegistry())
        relay = Relay(self.database.relay, broker, self.settings("relay", **more), metrics, Faults(faults))
        thread = threading.Thread(target=relay.run, name="test-relay")
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(relay.stop)
        return relay

    def submitter(self, faults: str = "", **more: str) -> Submitter:
        self._submitter = Submitter(self.database.app, self.redis_url, self.settings(**more), Faults(faults))
        self._submitter.open()
        self._stack.callback(self._submitter.close)
        return self._submitter

    def request(self, kind: str = "counter", payload: str = "{}", lane: str = "interactive", **more: Any) -> JobRequest:
        tenant = more.pop("tenant", self.tenant)
        if self._kinds[kind].queue in {"write", "read"}:
            more.setdefault("store", "journal")
        return JobRequest(tenant, more.pop("job", None) or uuid7(), self._kinds[kind], lane, payload, **more)

    def accept(self, kind: str = "counter", payload: str = "{}", **more: Any) -> UUID:
        accepted = self.accepted(kind, payload, **more)
        assert accepted.outcome == "accepted", accepted
        return accepted.job_id

    def accepted(self, kind: str = "counter", payload: str = "{}", **more: Any) -> Accepted:
        submitter = self._submitter or self.submitter()
        return submitter.accept(self.request(kind, payload, **more)).result(30)

    # -- processes ------------------------------------------------------------------------------------------------------

    def process(self, *arguments: str, role: str = "app", doomed: bool = False, **more: str) -> "Process":
        """`python -m tests.fakes.worker …`; returns once it is ready, unless it is `doomed` and may die before."""
        environment = child_environment(**self._given(role), **(self.more | more))
        process = Process(["-m", "tests.fakes.worker", *arguments], environment)
        self._stack.callback(process.end)
        if not doomed:
            process.read("ready")
        return process

    # -- what became of it ----------------------------------------------------------------------------------------------

    def job(self, job: UUID) -> Job:
        with self.database.app.tenant(self.tenant) as tx:
            return service.get(tx, self.tenant, job)

    def wait(self, jobs: Iterable[UUID] | UUID, seconds: float = 20.0) -> list[Job]:
        """The jobs once all have ended."""
        wanted = [jobs] if isinstance(jobs, UUID) else list(jobs)
        deadline = time.monotonic() + seconds
        return [
            until(lambda job=job: self._ended(job), deadline - time.monotonic(), lambda job=job: self.job(job).row)
            for job in wanted
        ]

    def wait_state(self, job: UUID, *states: str, seconds: float = 20.0) -> Job:
        until(lambda: self.job(job).state in states, seconds, lambda: self.job(job).row)
        return self.job(job)

    def _ended(self, job: UUID) -> Job | None:
        found = self.job(job)
        return found if found.state in TERMINAL else None


class Process:
    """One child; what it writes to standard error is kept for `errors`."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        self.child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip

    def read(self, expected: str | None = None) -> str:
        """The next line it prints; an empty one when it has ended."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline().strip()
        assert expected is None or line == expected, f"{line!r}: {self.errors()}"
        return line

    def say(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait(10)

    def died(self, seconds: float = 20.0) -> int:
        """How it ended: minus the signal's number when it was killed."""
        return self.child.wait(seconds)

    def pause(self) -> None:
        os.kill(self.child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.child.pid, signal.SIGCONT)

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        for stream in (self.child.stdin, self.child.stdout, self._errors):
            if stream is not None:
                stream.close()


@contextmanager
def fleet(database: TestDatabase, redis_url: str, tenant: UUID, **more: str) -> Generator[Fleet]:
    """Nothing runs at first; `more` are settings for all parts."""
    with ExitStack() as stack:
        yield Fleet(database, redis_url, tenant, stack, **more)
