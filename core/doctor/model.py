"""What the doctor says: findings, each with what was measured, and one conclusion."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK, WRONG, UNKNOWN, SKIPPED = "ok", "wrong", "unknown", "skipped"

ELSEWHERE = (
    "the logs of the API, the relay and the workers (the first error, not the last)",
    "/readyz of the API and of each worker: it gives its reasons",
    "/metrics of the exporter and of the workers, against deploy/runbooks",
    "`muniment jobs list`, and the `error` of one job that went wrong",
    "Postgres: pg_stat_activity (long transactions, locks) and its own log; the disk's free space",
    "Redis: INFO and SLOWLOG",
)
"""Where to look when no check knows the cause."""


@dataclass(frozen=True)
class Finding:
    """One check's answer.

    status  ok: measured, and not the cause; wrong: `cause` names it; unknown: something is wrong, and not for a reason
            known here; skipped: could not be measured, `measured` says why
    look    what to do about it, or where to look"""

    check: str
    status: str
    measured: str
    cause: str = ""
    look: str = ""


@dataclass(frozen=True)
class StuckJob:
    """A job that needs a look. `trouble`: dead | deferred | orphaned (waits for children, none is open) | abandoned (its
    lease ran out and nobody freed it) | overrunning (past its deadline with a live lease). `seconds`: since when."""

    trouble: str
    tenant: str
    job: str
    queue: str
    kind: str
    seconds: float
    attempt: int
    detail: str


@dataclass(frozen=True)
class Report:
    findings: Sequence[Finding]
    stuck: Sequence[StuckJob]

    @property
    def sick(self) -> bool:
        """Something is wrong, whether its cause was found or not."""
        return any(finding.status in {WRONG, UNKNOWN} for finding in self.findings)

    def of(self, status: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == status]

    @property
    def conclusion(self) -> str:
        """Never "all well": only what was looked for can be found."""
        wrong, unknown, skipped = self.of(WRONG), self.of(UNKNOWN), self.of(SKIPPED)
        if wrong:
            return f"Found: {', '.join(dict.fromkeys(finding.cause for finding in wrong))}."
        checked = f"{len(self.of(OK))} checks found nothing" + (
            f", {len(skipped)} could not be made" if skipped else ""
        )
        if unknown:
            return f"Something is wrong, and its cause is unknown to this command ({checked})."
        return f"{checked.capitalize()}. If something is wrong all the same, its cause is unknown to this command."

    def as_json(self) -> dict[str, Any]:
        """`{sick, conclusion, causes, findings, stuck, lookAt?}`"""
        entries: dict[str, Any] = {
            "sick": self.sick,
            "conclusion": self.conclusion,
            "causes": list(dict.fromkeys(finding.cause for finding in self.of(WRONG))),
            "findings": [{name: text for name, text in asdict(entry).items() if text} for entry in self.findings],
            "stuck": [asdict(job) for job in self.stuck],
        }
        return entries if self.of(WRONG) else entries | {"lookAt": list(ELSEWHERE)}
