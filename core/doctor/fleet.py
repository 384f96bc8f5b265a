"""Checks of what the fleet says about itself: workers, relay, clocks, backlog, stuck jobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from core.budget import caps
from core.clock import monotonic, now
from core.doctor import keys, money
from core.doctor.model import OK, SKIPPED, UNKNOWN, WRONG, Finding, StuckJob
from core.errors import Unavailable
from core.jobs.backlog import QueueBacklog, backlog, deferred_reasons
from core.settings import Settings
from core.store.database import Database, Row
from core.store.probe import asking

SILENT_SECONDS = 30.0
FORGOTTEN_SECONDS = 600.0
"""A process that has been silent for longer, and whose queues others serve, was ended for good."""
SKEW_SECONDS = 2.0
UNSENT_SECONDS = 30.0
WAIT_SECONDS = {"read": 15.0, "write": 60.0}
LONG_WAIT_SECONDS = 600.0
LISTED = 10
NAMES = ("workers", "relay", "clocks", "backlog", "jobs", keys.NAME, money.NAME)


def check_workers(
    processes: Sequence[Row], queues: Sequence[QueueBacklog], groups: Mapping[str, str], settings: Settings
) -> Finding:
    """Every queue has a live process, and every process that reported lately still does. `groups`: queue to the worker
    group that serves it."""
    silent = [row for row in processes if row["silent_seconds"] > _patience(row, settings)]
    alive = [row for row in processes if row not in silent]
    served = {queue for row in alive for queue in row["queues"]}
    waiting = {entry.queue: entry for entry in queues if entry.ready_jobs}
    missing = [queue for queue in (*groups, *(waiting.keys() - groups.keys())) if queue not in served]
    parts: list[str] = []
    for queue in missing:
        entry = waiting.get(queue)
        jobs = (
            f" ({entry.ready_jobs} jobs wait, the oldest for {_age(entry.ready_oldest_age_seconds)})" if entry else ""
        )
        parts.append(f"no live process serves {queue}{jobs}")
    told = [
        f"{row['role']} on {row['host']} (pid {row['pid']}) is not answering since {_age(row['silent_seconds'])}"
        for row in silent
        if missing or (row["silent_seconds"] <= FORGOTTEN_SECONDS and not _replaced(row, alive))
    ]
    if missing:
        start = sorted({groups[queue] for queue in missing if queue in groups})
        return Finding(
            "workers", WRONG, "; ".join(parts + told), "no-worker",
            "start " + ", ".join(f"`muniment worker {group}`" for group in start) + "; if one runs, see its log",
        )  # fmt: skip
    if told:
        look = (
            "if it runs, it is frozen or cut off from Postgres: see its log, restart it; if it was killed, others serve"
        )
        return Finding("workers", WRONG, "; ".join(told), "not-answering", f"{look} its queues")
    return Finding("workers", OK, f"every queue is served, by {sum(bool(row['queues']) for row in alive)} processes")


def _patience(row: Row, settings: Settings) -> float:
    """Seconds of silence that a process may keep: twice as long as its kind may take to report."""
    return 2 * (settings.relay_lease_seconds if row["role"] == "relay" else settings.renew_seconds)


def _replaced(row: Row, alive: Sequence[Row]) -> bool:
    """Whether one of its kind was started at its place after it was heard of last."""
    place = (row["role"], row["host"])
    return any((other["role"], other["host"]) == place and other["started_at"] > row["seen_at"] for other in alive)


def check_relay(leader: Row | None) -> Finding:
    """Somebody leads."""
    if leader is None:
        return Finding("relay", WRONG, "no relay has ever led", "no-relay", "start `muniment relay`")
    if leader["left_seconds"] < 0:
        measured = f"{leader['holder']} led last; its lease ran out {_age(-leader['left_seconds'])} ago"
        return Finding("relay", WRONG, measured, "no-relay", "start `muniment relay`, or look at its log")
    return Finding("relay", OK, f"{leader['holder']} leads")


def check_clocks(processes: Sequence[Row], offset: float, other: Mapping[str, float]) -> Finding:
    """Clocks agree with Postgres's. `offset`: this machine's seconds ahead of it; `other`: others' by name."""
    offsets = {"this machine": offset, **other}
    for row in processes:
        if row["silent_seconds"] <= SILENT_SECONDS:
            offsets[f"{row['role']} on {row['host']}"] = row["clock_skew_ms"] / 1000
    wrong = {name: ahead for name, ahead in offsets.items() if abs(ahead) > SKEW_SECONDS}
    if wrong:
        measured = "; ".join(f"{name} is {ahead:+.1f} s from Postgres's clock" for name, ahead in wrong.items())
        return Finding("clocks", WRONG, measured, "clock-skew", "run an NTP client on every machine")
    worst = max(abs(ahead) for ahead in offsets.values())
    return Finding("clocks", OK, f"{len(offsets)} clocks are within {worst:.2f} s of Postgres's")


def clock_offset(db: Database) -> float:
    """Seconds that this machine's clock is ahead of Postgres's. Raises Unavailable."""
    with asking(db) as tx:
        tx.value("clock")  # the connection is warm
        began, wall = monotonic(), now()
        theirs: datetime = tx.value("clock")
        took = monotonic() - began
    return (wall - theirs).total_seconds() + took / 2


def check_backlog(queues: Sequence[QueueBacklog], explained: bool) -> Finding:
    """Jobs are sent and taken in time. `explained`: another check has found a cause."""
    late = [
        f"{entry.queue}: {entry.ready_jobs} ready, the oldest for {_age(entry.ready_oldest_age_seconds)}"
        for entry in queues
        if entry.ready_oldest_age_seconds > WAIT_SECONDS.get(entry.queue.partition(".")[0], LONG_WAIT_SECONDS)
    ]
    unsent = [
        f"{entry.queue}: a job is owed a wake-up for {_age(entry.unsent_oldest_age_seconds)}"
        for entry in queues
        if entry.unsent_oldest_age_seconds > UNSENT_SECONDS
    ]
    if not late and not unsent:
        ready = sum(entry.ready_jobs for entry in queues)
        return Finding("backlog", OK, f"{ready} jobs ready, none for too long")
    measured = "; ".join(late + unsent)
    if explained:
        return Finding(
            "backlog", UNKNOWN, measured, look="the cause found above may explain this: mend it, then ask again"
        )
    where = (
        "the relay's log"
        if unsent
        else "the workers' logs, their /readyz, and whether more work arrives than they can do"
    )
    return Finding("backlog", UNKNOWN, measured, look=f"unknown cause, look at {where}")


def check_stuck(jobs: Sequence[StuckJob]) -> Finding:
    """Jobs that need a person, or a sweep that does not come. Deferred ones only wait for money or a model."""
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.trouble] = counts.get(job.trouble, 0) + 1
    bad = {trouble: count for trouble, count in counts.items() if trouble != "deferred"}
    if not bad:
        return Finding(
            "jobs", OK, f"none is dead, orphaned, abandoned or overrunning; {counts.get('deferred', 0)} deferred"
        )
    measured = ", ".join(f"{count}{'+' if count == LISTED else ''} {trouble}" for trouble, count in bad.items())
    hints = [
        hint
        for trouble, hint in (
            ("dead", "read their error, then `muniment queues retry` or `muniment queues purge`"),
            ("abandoned", "no relay sweeps: look at its log"),
            ("orphaned", "no relay sweeps: look at its log"),
            ("overrunning", "the worker's thread hangs: look at its log, restart it"),
        )
        if trouble in bad
    ]
    return Finding("jobs", WRONG, measured, "stuck-jobs", "; ".join(dict.fromkeys(hints)))


def stuck_jobs(db: Database) -> list[StuckJob]:
    """At most `LISTED` of each trouble, oldest first. Raises Unavailable."""
    with asking(db) as tx:
        rows: list[dict[str, Any]] = tx.rows("stuck_jobs", limit=LISTED)
    return [
        StuckJob(
            row["trouble"], str(row["tenant_id"]), str(row["job_id"]), row["queue"], row["kind"], row["seconds"],
            row["attempt"], row["detail"] or "",
        )
        for row in rows
    ]  # fmt: skip


def examine(
    db: Database, settings: Settings, groups: Mapping[str, str], redis_ahead: float | None
) -> tuple[list[Finding], list[StuckJob]]:
    """All checks that need the fleet's tables. `redis_ahead`: seconds of Redis's clock ahead of this machine's."""
    try:
        offset = clock_offset(db)
        with asking(db) as tx:
            facts = tx.row("role_facts") or {}
            if not facts.get("sees_all"):
                return skipped(
                    f"the role {facts.get('role')} sees one tenant: give the owner's or the relay's role"
                ), []
            processes = tx.rows("processes")
            leader = tx.row("leader", name="relay")
            queues = backlog(tx, settings.inflight_interactive, settings.inflight_bulk)
            wanted = keys.profiles(tx, settings)
            accounts, waiting = caps.accounts(tx), deferred_reasons(tx)
        stuck = stuck_jobs(db)
    except Unavailable as error:
        return skipped(f"could not be asked: {error.detail}"), []
    findings = [
        check_workers(processes, queues, groups, settings),
        check_relay(leader),
        check_clocks(processes, offset, {} if redis_ahead is None else {"Redis": offset + redis_ahead}),
        check_stuck(stuck),
        keys.check_keys(wanted, [row for row in processes if row["silent_seconds"] <= _patience(row, settings)]),
        money.check_money(accounts, waiting),
    ]
    explained = any(finding.status == WRONG for finding in findings)
    return [*findings, check_backlog(queues, explained)], stuck


def skipped(why: str) -> list[Finding]:
    """All of these checks, not made."""
    return [Finding(name, SKIPPED, why) for name in NAMES]


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3600:.0f} h"
