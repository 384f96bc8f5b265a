"""`python -m tests.bench.kill [--json FILE] [--kills N] [--fault SPEC]`: SIGKILL a worker in mid-job, again and again.

Each job takes some 50 ms and then leaves one row as its effect; a worker lives for some seconds, so that a job is not killed
three times over, which would end it for good. A fault log, one line when a job begins and one when it
has ended, shows which kills hit a job. Exit 1 unless every job's effect is there exactly once, and each interrupted job was
done within 60 s of the kill. The control takes the fence away (`commit.fence=skip`): effects are then committed apart from
the final state, the worker dies in between, and the command must see the second row.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from core import ids
from core.jobs.model import JobRequest
from core.settings import load
from core.store.database import Database
from tests.bench.noop import GROUP, KINDS
from tests.bench.peers import Process
from tests.bench.report import Bar, Report, Sample
from tests.bench.stage import Stage, stage
from workers.submit import Submitter

KILLS = 30
INSIDE = 25
JOB_PAUSE = 0.02
TENANTS = 8
LIFE_SECONDS = (0.3, 3.0)
"""Of a worker, from its first job to its kill."""
SETTLE_SECONDS = 150.0


def run(found: Stage, report: Report, *, kills: int = KILLS) -> None:
    found.clear()
    tenants = [found.tenant(f"kill-{number}-{ids.uuid7().hex[-6:]}")[0] for number in range(TENANTS)]
    accepted: list[UUID] = []
    killed: list[datetime] = []
    stop = threading.Event()
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.NamedTemporaryFile(suffix=".log")).name)
        db = stack.enter_context(Database(found.dsn("app"), name="bench", size=2))
        settings = load({}, database_url=found.dsn("app"), redis_url=found.valkey.url)
        submitter = Submitter(db, found.valkey.url, settings)
        submitter.open()
        stack.callback(submitter.close)
        stack.enter_context(found.relay())
        load_thread = threading.Thread(target=_load, args=(submitter, tenants, stop, accepted))
        load_thread.start()
        chance = random.Random(11)
        worker = _start(found, log)
        for _ in range(kills):
            _until_busy(log)
            time.sleep(chance.uniform(*LIFE_SECONDS))
            killed.append(datetime.now(UTC))
            worker.kill()
            worker = _start(found, log)
        stop.set()
        load_thread.join()
        deadline = time.monotonic() + SETTLE_SECONDS
        while found.left() and time.monotonic() < deadline:
            time.sleep(0.25)
        worker.stop()
        interrupted = _interrupted(log, killed)
        with found.admin() as admin:
            rows = admin.execute(
                b"select job_id, finished_at, state, (select coalesce(sum(effects), 0) from bench_counters c"
                b" where c.tenant_id = j.tenant_id and c.job_id = j.job_id) from jobs j"
            ).fetchall()
    ends = {row[0]: row[1] for row in rows if row[2] == "succeeded"}
    wrong = sum(int(row[3]) != 1 for row in rows) + len(set(accepted) - {row[0] for row in rows})
    inside = len({kill for kill, _ in interrupted})
    seconds = [
        (ends[job] - killed[kill]).total_seconds() if job in ends else SETTLE_SECONDS for kill, job in interrupted
    ]
    # A job may be interrupted again: what counts is the time since the last kill that hit it.
    last: dict[UUID, float] = {}
    for (_, job), took in zip(interrupted, seconds, strict=True):
        last[job] = took
    report.samples.append(
        Sample(
            "interrupted job done after the kill",
            "s",
            f"{len(accepted):,} jobs of {TENANTS} tenants, {kills} kills, lease 30 s, sweep 5 s",
            list(last.values()) or [0.0],
        )
    )
    report.bars += [
        Bar("kills_inside_a_job", f"kills inside a job, of {kills}", inside, "≥", INSIDE * kills / KILLS),
        Bar("effects_not_once", "jobs whose effect is not there exactly once", wrong, "≤", 0),
        Bar("slowest_after_kill_s", "slowest interrupted job", max(last.values(), default=0.0), "≤", 60, "s"),
    ]


def _start(found: Stage, log: Path) -> Process:
    environment = found.environment("app") | {"BENCH_FAULT_LOG": str(log)}
    return Process(["-m", "tests.bench.kill_worker", GROUP], environment)


def _load(submitter: Submitter, tenants: list[UUID], stop: threading.Event, accepted: list[UUID]) -> None:
    while not stop.wait(JOB_PAUSE):
        request = JobRequest(tenants[len(accepted) % len(tenants)], ids.uuid7(), KINDS["counter"], "interactive", "{}")
        accepted.append(submitter.accept(request).result(30).job_id)


def _until_busy(log: Path) -> None:
    """Until the newest worker has begun a job."""
    size = log.stat().st_size
    deadline = time.monotonic() + 60
    while log.stat().st_size <= size:
        if time.monotonic() > deadline:
            raise RuntimeError("no job begins")
        time.sleep(0.01)


def _interrupted(log: Path, killed: list[datetime]) -> list[tuple[int, UUID]]:
    """(number of the kill, job) for every job that had begun in a worker and not ended when it was killed."""
    begun: dict[str, dict[UUID, datetime]] = {}
    for line in log.read_text().splitlines():
        moment, pid, word, job = line.split()
        if word == "begin":
            begun.setdefault(pid, {})[UUID(job)] = datetime.fromisoformat(moment)
        else:
            begun.get(pid, {}).pop(UUID(job), None)
    return sorted(
        (next(n for n, kill in enumerate(killed) if kill >= moment), job)
        for jobs in begun.values()
        for job, moment in jobs.items()
        if moment <= killed[-1]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--fault", default="")
    parser.add_argument("--no-controls", action="store_true")
    given = parser.parse_args()
    report = Report("Kills", {"worker": "1 process × 8 threads, default settings"})
    with stage() as found:
        found.faults = given.fault
        run(found, report, kills=given.kills)
    if not given.fault and not given.no_controls:
        without = Report("without the fence")
        with stage() as found:
            found.faults = "commit.fence=skip;commit.effects=sleep:1:0.05"
            run(found, without, kills=8)
        missed = sum(bar.key == "effects_not_once" and not bar.passed for bar in without.bars)
        report.bars.append(Bar("control_kill", "bars missed without the fence, of 1", missed, "≥", 1))
    report.show()
    if given.json:
        report.write(given.json)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
