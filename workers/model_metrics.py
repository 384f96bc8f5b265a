"""What a worker counts of its model calls. Labels are bounded: provider, stage, class, outcome; never a profile."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from core.budget.model import CALL_CLASSES, CURRENCIES, Spender

PROVIDERS = frozenset({*CURRENCIES, "local", "embedding"})
STAGES = frozenset(
    {"plan", "rewrite", "screen", "judge", "layer", "expand", "extract", "fold", "link", "overlay", "embed"}
)
OUTCOMES = frozenset(
    {
        "ok", "unreachable", "lost", "timeout", "throttled", "failed", "refused", "unparsable", "unmetered", "cut",
        "budget-spent", "cap-spent", "not-sent", "error", "cached",
    }
)  # fmt: skip
"""How an attempt ends (core/models/attempt.py)."""
OTHER = "other"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45, 90, 180, 600, 1800)


class ModelMetrics:
    """Counters of one process, in `registry`. Every method is cheap and may be called by any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "muniment_model_attempts", "Attempts at model calls that ended, by how.",
            ("provider", "stage", "class", "outcome"), registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "muniment_model_attempt_seconds", "From sent to ended.", ("provider", "class"), registry=registry,
            buckets=BUCKETS,
        )  # fmt: skip
        self._retries = Counter(
            "muniment_model_retries",
            "Attempts that follow a failed one, by why it failed; `budget`: none followed, the retry budget was spent.",
            ("provider", "reason"), registry=registry,
        )  # fmt: skip
        self._open = Gauge(
            "muniment_model_circuits_open", "Endpoints whose calls fail fast, as this process knows.", ("provider",),
            registry=registry,
        )  # fmt: skip
        for provider in PROVIDERS:
            for call_class in CALL_CLASSES:
                self._seconds.labels(provider, call_class)

    def watch(self, open_circuits: Callable[[], Sequence[str]]) -> None:
        """`open_circuits`: the circuits that are open, each beginning with its provider (`Circuits.open`)."""

        def count(provider: str) -> Callable[[], float]:
            return lambda: sum(1 for circuit in open_circuits() if circuit.split(" ")[0] == provider)

        for provider in PROVIDERS:
            self._open.labels(provider).set_function(count(provider))

    def attempt(self, provider: str, spender: Spender, outcome: str, seconds: float) -> None:
        name = _known(provider, PROVIDERS)
        stage = _known(spender.stage, STAGES)
        self._attempts.labels(name, stage, spender.call_class, _known(outcome, OUTCOMES)).inc()
        self._seconds.labels(name, spender.call_class).observe(max(seconds, 0.0))

    def retry(self, provider: str, reason: str) -> None:
        self._retries.labels(_known(provider, PROVIDERS), _known(reason, OUTCOMES | {"budget"})).inc()


def _known(name: str, names: frozenset[str]) -> str:
    return name if name in names else OTHER
