"""`muniment doctor`: measures, and names what is wrong."""

import typer

from api.cli.options import AsJson
from api.cli.output import print_json, print_table
from core.doctor.model import ELSEWHERE, OK, SKIPPED, UNKNOWN, WRONG, Report

MARKS = {WRONG: "WRONG", UNKNOWN: "UNKNOWN", SKIPPED: "not checked", OK: "ok"}


def doctor(as_json: AsJson = False) -> None:
    """Look for what keeps Muniment from working, and name it. Exit status 1 when something is wrong.

    Uses DATABASE_URL (the owner's or the relay's role), REDIS_URL, URL and API_KEY, or the stack that runs on the data
    folder. What it does not know it calls unknown, and says where to look."""
    from api.cli.examining import examine, settings_of_site

    report = examine(settings_of_site())
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    raise typer.Exit(1 if report.sick else 0)


def _print(report: Report) -> None:
    rows: list[tuple[str, str, str]] = []
    for status, mark in MARKS.items():
        for entry in report.of(status):
            told = entry.measured + (f"\n→ {entry.look}" if entry.look else "")
            rows.append((mark, entry.cause or entry.check, told))
    print_table(("", "", "measured"), rows)
    if report.stuck:
        print()
        print_table(
            ("trouble", "queue", "job", "tenant", "for", "attempt", "detail"),
            [
                (job.trouble, job.queue, job.job, job.tenant, f"{job.seconds:.0f} s", job.attempt, job.detail)
                for job in report.stuck
            ],
            title="Jobs that need a look",
        )
    print(f"\n{report.conclusion}")
    if not report.of(WRONG):
        print("Look at:")
        for place in ELSEWHERE:
            print(f"  {place}")
