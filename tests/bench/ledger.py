"""`python -m tests.bench.ledger [--json FILE] [--attempts N] [--fault SPEC]`: whether the ledger is exact, and what it costs.

Sixteen processes of sixteen threads ask one provider at once, against one cap that is always nearly reached; the provider
fails at random, and processes are killed with SIGKILL. Afterwards every attempt in the ledger is compared with the provider's
own log, which has its own prices. The same, smaller, is done once more without the settle step: there must be differences.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from core.budget.caps import set_provider_caps
from core.store.database import Database
from tests.bench.paying import KEY_ENV
from tests.bench.report import Bar, Report, Sample, percentile
from tests.bench.stage import Stage, stage
from tests.fakes.fleet import Process

PROCESSES, THREADS = 16, 16
ATTEMPTS = 100_000
CONTROL_ATTEMPTS = 2_000
RUN_SECONDS = 600.0
KILL_SECONDS = 6.0
CAP = 2_500_000_000
"""USD 2.50: 256 threads reserve 0.01 each, so the cap is always in sight, and nearer the more is spent."""
RESERVE = 10_000_000
CONTROL_CAP = 2 * CONTROL_ATTEMPTS * RESERVE
"""Nothing is ever given back there."""
FIRST_SECONDS = 60.0
LEASE = {"lease_seconds": "10", "renew_seconds": "2", "sweep_seconds": "1"}
FAULTS = {
    "reset-before": 0.004, "reset-after": 0.008, "cut": 0.01, "400": 0.004, "429": 0.002, "500": 0.01, "503": 0.01,
    "html": 0.004, "no-usage": 0.006, "garbled": 0.01, "slow": 0.02,
}  # fmt: skip
WATCH = """
create table bench_over (nanos bigint not null);
grant insert on bench_over to muniment_app, muniment_relay;
create function bench_note_over() returns trigger language plpgsql as $$
begin
  insert into bench_over values (new.spent + new.reserved + new.leased - new.cap);
  return null;
end $$;
create trigger bench_over after update on budget_accounts for each row
  when (new.spent + new.reserved + new.leased > new.cap) execute function bench_note_over();
"""
PAIR_SECONDS = 8.0
PAIR_PROCESSES, PAIR_THREADS = 4, 4
PAIR_RATES = (100.0, 500.0)


@dataclass
class Provider:
    """The fake as a process: its address, and its log."""

    url: str
    log: Path
    _read: int = 0
    _lines: int = 0

    def asked(self) -> int:
        """How many requests it has ended so far."""
        with self.log.open("rb") as file:
            file.seek(self._read)
            more = file.read()
        self._read += len(more)
        self._lines += more.count(b"\n")
        return self._lines

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


@dataclass
class Fleet:
    """The paying processes; `killed`: the lease ids of those that were."""

    found: Stage
    tenant: UUID
    endpoint: str
    faults: str
    running: list[tuple[Process, UUID]] = field(default_factory=list[tuple[Process, UUID]])
    killed: set[UUID] = field(default_factory=set[UUID])

    def start(self, processes: int) -> None:
        more = {"model_key_envs": KEY_ENV, **LEASE}
        environment = os.environ | {KEY_ENV: "no secret"} | self.found.environment("app", faults=self.faults, **more)
        arguments = ["-m", "tests.bench.paying", "calls", str(self.tenant), self.endpoint, str(THREADS)]
        started = [Process(arguments, environment) for _ in range(processes)]
        for process in started:
            word, _, owner = process.read().partition(" ")
            if word != "ready":
                raise RuntimeError(f"a paying process did not start: {process.errors()[-2_000:]}")
            self.running.append((process, UUID(owner)))

    def kill_one(self, dice: random.Random) -> None:
        process, owner = self.running.pop(dice.randrange(len(self.running)))
        process.kill()
        process.end()
        self.killed.add(owner)
        self.start(1)

    def stop(self) -> None:
        for process, _ in self.running:
            process.child.send_signal(signal.SIGTERM)
        for process, owner in self.running:
            with suppress(Exception):
                process.died(60)
            if process.child.returncode != 0:
                self.killed.add(owner)
            process.end()
        self.running = []


@contextmanager
def provider(folder: Path, faults: dict[str, float]) -> Iterator[Provider]:
    port, log, script = folder / "port", folder / "log", folder / "script"
    script.write_text(json.dumps({"chaos": {"seed": 7, "chances": faults}}), "utf-8")
    arguments = ["-m", "tests.fakes.provider", "--port-file", str(port), "--log", str(log), "--script", str(script)]
    process = Process(arguments, dict(os.environ))
    try:
        _until(port.exists, 20, "the provider does not listen")
        yield Provider(f"http://127.0.0.1:{port.read_text('utf-8')}", log)
    finally:
        process.end()


def exactness(found: Stage, report: Report, attempts: int, faults: str, cap: int = CAP) -> None:
    """Adds the bars of the comparison."""
    tenant, _ = found.tenant(f"ledger-{attempts}")
    with found.admin() as admin:
        admin.execute(WATCH.encode())
    with Database(found.dsn("relay"), name="bench", size=1) as db, db.system() as tx:
        set_provider_caps(tx, {"jev": cap}, {})
    dice = random.Random(11)
    headroom = cap
    with ExitStack() as stack:
        stack.enter_context(found.relay(**LEASE))
        fake = stack.enter_context(provider(found.folder, FAULTS))
        fleet = Fleet(found, tenant, f"{fake.url}/v1/systemone", faults)
        stack.callback(fleet.stop)
        fleet.start(PROCESSES)
        began = kill_at = time.monotonic()
        reached = 0
        while (reached := fake.asked()) < attempts and time.monotonic() - began < RUN_SECONDS:
            if time.monotonic() - kill_at >= KILL_SECONDS:
                kill_at = time.monotonic()
                fleet.kill_one(dice)
                print(f"  {reached:,} attempts, {len(fleet.killed)} kills", file=sys.stderr, flush=True)
            if reached == 0 and time.monotonic() - began > FIRST_SECONDS:
                raise RuntimeError("no attempt reached the provider")
            headroom = min(headroom, _room(found))
            time.sleep(0.2)
        seconds = time.monotonic() - began
        fleet.stop()
        # What the killed had reserved is held for as long as its reply could still come: timeoutSeconds and 90 s.
        _until(lambda: _open(found) == 0 or faults != "", 240, "reservations stay open")
    with found.admin() as admin:
        over = _one(admin.execute(b"select coalesce(max(nanos), 0) from bench_over").fetchone())
        entries = {
            str(row[0]): row[1:]
            for row in admin.execute(
                b"select entry_id, state, outcome, cost, input_estimate, owner, reserve from budget_entries"
            )
        }
        spent = _one(admin.execute(b"select spent from budget_accounts where provider = 'jev'").fetchone())
    rows = fake.rows()
    difference, notes = compare(rows, entries, fleet.killed)
    difference += abs(spent - sum(entry[2] for entry in entries.values()))
    states: dict[str, int] = {}
    for entry in entries.values():
        states[entry[0]] = states.get(entry[0], 0) + 1
    report.settings["attempts"] = (
        f"{len(rows):,} reached the provider in {seconds:.0f} s; {len(fleet.killed)} processes killed; entries: "
        + ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    )
    for note in notes[:5]:
        print(f"  {note}", file=sys.stderr)
    report.bars += [
        Bar("attempts", "attempts that reached the provider", len(rows), "≥", attempts),
        Bar("over_cap_nanos", "most that the account ever was over its cap", over, "≤", 0, "nano"),
        Bar("difference_nanos", "ledger against the provider's own log", difference, "≤", 0, "nano"),
        Bar("cap_headroom_nanos", "least room under the cap that was seen", headroom, "≤", RESERVE, "nano"),
    ]


def compare(
    rows: list[dict[str, Any]], entries: dict[str, tuple[Any, ...]], killed: set[UUID]
) -> tuple[int, list[str]]:
    """Nano-units by which the ledger is wrong, entry by entry, and the first of them in words.

    A metered reply that arrived: the provider's price. Refused: nothing. Anything else that was sent, and whatever a killed
    process left: the stored input estimate. Not sent: nothing, or the estimate when nobody could know."""
    difference = 0
    notes: list[str] = []
    by_id = {row["client_id"]: row for row in rows}
    if len(by_id) != len(rows):
        notes.append(f"{len(rows) - len(by_id)} requests were sent twice under one reservation")
        difference += sum(row["cost_nanos"] + 1 for row in rows) - sum(row["cost_nanos"] + 1 for row in by_id.values())
    for entry_id in by_id.keys() | entries.keys():
        row, entry = by_id.get(entry_id), entries.get(entry_id)
        if entry is None:
            assert row is not None
            wrong = row["cost_nanos"] + 1
        else:
            state, outcome, cost, estimate, owner, reserve = entry
            lost = state == "estimated" and outcome == "owner-lost" and owner in killed
            if state == "reserved":
                wrong = reserve
            elif lost:
                wrong = abs(cost - estimate)
            elif row is None:
                wrong = abs(cost - (estimate if state == "estimated" else 0))
            elif row["sent"]:
                wrong = abs(cost - row["cost_nanos"])
            elif row["outcome"] == "refused":
                wrong = cost
            else:
                wrong = abs(cost - estimate)
        if wrong:
            notes.append(f"{entry_id}: {wrong} nano: ledger {entry}, provider {row}")
        difference += wrong
    return difference, notes


def speed(found: Stage, report: Report) -> None:
    """Adds pairs a second flat out, and what a pair adds to a call at a lower rate: all on one account."""
    tenant, _ = found.tenant("speed")
    with Database(found.dsn("relay"), name="bench", size=1) as db, db.system() as tx:
        set_provider_caps(tx, {"jev": 10**15}, {})
    disk = _disk(found)
    report.samples.append(
        Sample("a commit alone, for comparison", "ms", "one session", [value * 1e3 for value in disk])
    )
    for part, name in (("0", "account"), ("0.01", "slices")):
        rate = 0.0
        for asked in (0.0, *PAIR_RATES):
            took = _pairs(found, tenant, asked, part)
            what = f"reserve + settle, {f'{asked:.0f}/s' if asked else 'flat out'}"
            settings = f"{PAIR_PROCESSES} processes × {PAIR_THREADS} threads, {name}"
            report.samples.append(Sample(what, "ms", settings, [value * 1e3 for value in took]))
            rate = rate if asked else len(took) / PAIR_SECONDS
            if part != "0":
                report.settings["slices"] = f"{rate:,.0f} pairs/s flat out"
            elif not asked:
                report.bars.append(Bar("pairs_per_s", "reserve + settle on one account", rate, "≥", 500, "pairs/s"))
            elif asked == PAIR_RATES[0]:
                added = percentile(took, 0.5) * 1e3
                report.bars.append(Bar("added_ms", f"p50 added to a call, at {asked:.0f} pairs/s", added, "≤", 4, "ms"))


def _disk(found: Stage) -> list[float]:
    """Seconds of commits that wait for the disk, one after the other."""
    took: list[float] = []
    with Database(found.dsn("app"), name="bench", size=1) as db, db.direct() as tx:
        for _ in range(300):
            began = time.perf_counter()
            tx.value("wait_for_disk")
            took.append(time.perf_counter() - began)
    return took


def _pairs(found: Stage, tenant: UUID, rate: float, part: str) -> list[float]:
    """Seconds of each pair, from processes that began together; `rate` pairs a second over all of them, 0: flat out."""
    environment = os.environ | found.environment("app", budget_slice=part)
    arguments = ["-m", "tests.bench.paying", "pairs", str(tenant), str(PAIR_SECONDS), str(PAIR_THREADS)]
    processes = [Process([*arguments, str(rate / PAIR_PROCESSES)], environment) for _ in range(PAIR_PROCESSES)]
    took: list[float] = []
    try:
        for process in processes:
            if not process.read().startswith("ready"):
                raise RuntimeError(f"a paying process did not start: {process.errors()[-2_000:]}")
        for process in processes:
            process.say("go")
        for process in processes:
            took += json.loads(process.read())
    finally:
        for process in processes:
            process.end()
    return took


def _room(found: Stage) -> int:
    with found.admin() as admin:
        row = admin.execute(b"select cap - spent - reserved - leased from budget_accounts where provider = 'jev'")
        return _one(row.fetchone())


def _open(found: Stage) -> int:
    with found.admin() as admin:
        return _one(admin.execute(b"select count(*) from budget_entries where state = 'reserved'").fetchone())


def _one(row: tuple[Any, ...] | None) -> int:
    assert row is not None
    return int(row[0])


def _until(look: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="how many attempts are to reach the provider")
    parser.add_argument("--fault", default="", help="a fault hook for the paying processes (core/faults.py)")
    parser.add_argument("--only", choices=["speed", "exactness"])
    given = parser.parse_args()
    report = Report(
        "The ledger", {"postgres": "embedded, fsync on, synchronous_commit on", "cpus": str(os.cpu_count())}
    )
    if given.only != "exactness":
        with stage() as found:
            print("speed …", file=sys.stderr, flush=True)
            speed(found, report)
    if given.only != "speed":
        with stage() as found:
            print("exactness …", file=sys.stderr, flush=True)
            exactness(found, report, given.attempts, given.fault)
        if not given.fault:
            with stage() as found:
                print("negative control: budget.settle=skip …", file=sys.stderr, flush=True)
                without = Report("control")
                exactness(found, without, CONTROL_ATTEMPTS, "budget.settle=skip", CONTROL_CAP)
                missed = next(bar for bar in without.bars if bar.key == "difference_nanos").value
                report.bars.append(
                    Bar("control_difference_nanos", "the same difference with the settle step left out", missed, "≥", 1)
                )
    report.show()
    if given.json:
        report.write(given.json)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
