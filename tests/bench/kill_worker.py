"""The worker of `tests.bench.kill`: its jobs take a while and write the fault log."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from core.clock import now
from core.jobs.model import Done
from core.settings import load
from tests.bench import noop
from workers.actors.work import Work
from workers.logs import configure
from workers.main import WorkerProcess

WORK_SECONDS = 0.05


def main(group: str) -> None:
    log = os.open(Path(os.environ["BENCH_FAULT_LOG"]), os.O_WRONLY | os.O_APPEND)

    def write(word: str, job: object) -> None:
        os.write(log, f"{now().isoformat()} {os.getpid()} {word} {job}\n".encode())

    def counter(work: Work) -> Done:
        write("begin", work.claim.job_id)
        time.sleep(WORK_SECONDS)
        return noop.counter(work)

    class Process(WorkerProcess):
        def _handle(self, tenant_id, job_id, queue) -> None:
            super()._handle(tenant_id, job_id, queue)
            write("end", job_id)

    settings = load()
    configure("text")
    process = Process(settings, group, more_kinds=noop.KINDS, more_actors={"counter": counter})
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    process.start()
    stopping.wait()
    process.stop()


if __name__ == "__main__":
    main(sys.argv[1])
