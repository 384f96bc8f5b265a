"""`python -m tests.bench.spine [--json FILE] [--only SECTION]… [--fault SPEC]`: the spine's bars, side by side in one run.

Every section also runs its negative control: the same measurement, smaller, with a fault hook that takes its guarantee away.
A control that still passes its bar fails the command. `--fault` gives a hook to all sections instead: it then exits 1.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench import accepting, bulk, fairness, latency, losses, throughput
from tests.bench.peers import HttpServer
from tests.bench.report import Bar, Report
from tests.bench.stage import Stage, stage


@dataclass(frozen=True)
class Section:
    """`control` is the hook without which `keys` cannot be reached; `small` measures only those."""

    measure: Callable[[Stage, Report], None]
    small: Callable[[Stage, Report], None]
    control: str
    keys: tuple[str, ...]


SECTIONS = {
    "latency": Section(
        latency.run,
        lambda s, r: latency.run(s, r, requests=10),
        "submit.wake=skip",
        ("round_trip_ratio", "idle_round_trip_ms"),
    ),
    "throughput": Section(
        throughput.run,
        lambda s, r: throughput.run(s, r, jobs=1_500, rounds=1),
        "claim.before=sleep:1:0.02",
        ("throughput_vs_dramatiq",),
    ),
    "accept": Section(
        accepting.run,
        lambda s, r: accepting.run(s, r, requests=600, rounds=1),
        "submit.before=sleep:1:0.1",
        ("accept_ratio",),
    ),
    "bulk": Section(
        bulk.run, lambda s, r: bulk.run(s, r, items=4_000), "commit.begin=sleep:1:1", ("bulk_items_per_s",)
    ),
    "losses": Section(losses.run, lambda s, r: losses.run(s, r, small=True), "relay.resend=skip", ("lost",)),
    "fairness": Section(
        fairness.run,
        lambda s, r: fairness.run(s, r, documents=2_000),
        "claim.before=sleep:1:0.3",
        ("other_tenant_wait_ms",),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--only", action="append", choices=sorted(SECTIONS), help="a section; may be given again")
    parser.add_argument("--fault", default="", help="a fault hook for every process of the product (core/faults.py)")
    parser.add_argument("--no-controls", action="store_true", help="leave the negative controls out")
    given = parser.parse_args()
    postgres = "embedded, fsync on, synchronous_commit on"
    settings = {"postgres": postgres, "redis": "AOF everysec", "http": HttpServer.settings}
    report = Report("The spine", settings)
    for name in given.only or SECTIONS:
        section = SECTIONS[name]
        with stage() as found:
            found.faults = given.fault
            print(f"{name} …", file=sys.stderr, flush=True)
            section.measure(found, report)
        if not given.fault and not given.no_controls:
            with stage() as found:
                found.faults = section.control
                print(f"{name}: negative control {section.control} …", file=sys.stderr, flush=True)
                report.bars.append(_control(name, section, found))
    report.show()
    if given.json:
        report.write(given.json)
    return report.exit_code


def _control(name: str, section: Section, found: Stage) -> Bar:
    """How many of the section's bars are missed without its guarantee: all must be."""
    without = Report(name)
    try:
        section.small(found, without)
        missed = sum(bar.key in section.keys and not bar.passed for bar in without.bars)
    except RuntimeError as error:
        print(f"{name}: the control broke off: {error}", file=sys.stderr)
        missed = len(section.keys)
    title = f"bars of {name} missed under {section.control}, of {len(section.keys)}"
    return Bar(f"control_{name}", title, missed, "≥", len(section.keys))


if __name__ == "__main__":
    sys.exit(main())
