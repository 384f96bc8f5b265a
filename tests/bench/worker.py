"""`python -m tests.bench.worker GROUP`: the product's worker process with the benchmarks' kinds added."""

import os
import signal
import sys
import threading

from core.settings import load
from tests.bench.noop import ACTORS, KINDS
from workers.logs import configure
from workers.main import WorkerProcess
from workers.queues import GROUPS


def main(group: str) -> None:
    settings = load()
    configure(settings.log)
    process = WorkerProcess(settings, group, more_kinds=KINDS, more_actors=ACTORS)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    if GROUPS[group].niceness:
        os.nice(GROUPS[group].niceness)
    process.start()
    stopping.wait()
    process.stop()


if __name__ == "__main__":
    main(sys.argv[1])
