"""Money and what waits for it, as the exporter shows them (queue-facts.md C1, C2)."""

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from core.budget.caps import Total
from core.budget.model import NANO
from core.jobs.backlog import DeferredReason
from workers.metrics import OTHER

REASONS = ("budget", "embed", "model", "unknown-kind")
"""Why a job is deferred; any other is counted as `other`."""

MONEY_GAUGES = {
    "cap": ("muniment_budget_cap_units", "The operator's cap, in whole units of the currency."),
    "spent": ("muniment_budget_spent_units", "Settled so far, in whole units of the currency."),
    "reserved": ("muniment_budget_reserved_units", "Set aside by calls under way and by slices, in whole units."),
}
"""Field of `Total`, and the name and meaning of its gauge."""


def money_families(totals: Iterable[Total]) -> list[Metric]:
    """One series an account; none when they could not be read."""
    found = list(totals)
    families: list[Metric] = []
    for name, (metric, meaning) in MONEY_GAUGES.items():
        family = GaugeMetricFamily(metric, meaning, labels=("provider", "currency"))
        for total in found:
            family.add_metric((total.provider, total.currency), int(getattr(total, name)) / NANO)
        families.append(family)
    oldest = GaugeMetricFamily(
        "muniment_reservation_oldest_age_seconds", "Age of the oldest reservation that is open.", labels=("provider",)
    )
    for total in found:
        oldest.add_metric((total.provider,), total.oldest_open_seconds)
    return [*families, oldest]


def deferred_families(reasons: Iterable[DeferredReason] | None) -> list[Metric]:
    """Every reason there is, also those that no job has; None: they could not be read."""
    jobs = GaugeMetricFamily("muniment_deferred_reason_jobs", "Jobs that wait, by for what.", labels=("reason",))
    age = GaugeMetricFamily(
        "muniment_deferred_reason_oldest_age_seconds", "Age of the job that waits longest.", labels=("reason",)
    )
    if reasons is not None:
        counts: dict[str, tuple[int, float]] = dict.fromkeys((*REASONS, OTHER), (0, 0.0))
        for entry in reasons:
            reason = entry.reason if entry.reason in counts else OTHER
            many, oldest = counts[reason]
            counts[reason] = (many + entry.jobs, max(oldest, entry.oldest_age_seconds))
        for reason, (many, oldest) in counts.items():
            jobs.add_metric((reason,), many)
            age.add_metric((reason,), oldest)
    return [jobs, age]
