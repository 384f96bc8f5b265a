"""What is counted of model calls: every outcome by bounded labels (failure cases S14, S39)."""

from typing import Any
from uuid import uuid5

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from core.errors import ModelUnavailable
from tests.fakes.attempting import ask, gateway, profile
from tests.fakes.models import TENANT, spender
from tests.fakes.provider import Step, provider
from workers.model_metrics import ModelMetrics


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, labels) or 0.0


def test_s14_a_provider_that_only_throttles_is_seen_to_and_stops_no_other() -> None:
    registry = CollectorRegistry()
    with provider() as fake, gateway(observe=ModelMetrics(registry)) as opened:
        fake.script([Step(status=429)] * 8, match="jev")
        with pytest.raises(ModelUnavailable, match="429"):
            ask(opened, profile(fake, "jev"))
        assert ask(opened, profile(fake, "deepseek")).text
        assert opened.circuits.open() == []  # throttling is no failure
    labels = {"provider": "jev", "stage": "judge", "class": "read"}
    assert value(registry, "muniment_model_attempts_total", **labels, outcome="throttled") == 8
    assert value(registry, "muniment_model_retries_total", provider="jev", reason="throttled") == 7
    labels["provider"] = "deepseek"
    assert value(registry, "muniment_model_attempts_total", **labels, outcome="ok") == 1


def test_open_circuits_are_shown_by_provider() -> None:
    registry = CollectorRegistry()
    metrics = ModelMetrics(registry)
    circuits = ["jev", "local 127.0.0.1:1", "local 127.0.0.1:2"]
    metrics.watch(lambda: circuits)
    shown = {
        name: value(registry, "muniment_model_circuits_open", provider=name) for name in ("jev", "local", "openai")
    }
    assert shown == {"jev": 1, "local": 2, "openai": 0}


def test_ten_thousand_odd_names_make_no_new_series() -> None:
    registry = CollectorRegistry()
    metrics: Any = ModelMetrics(registry)
    for n in range(10_000):
        name = str(uuid5(TENANT, str(n)))
        metrics.attempt(name, spender(stage=name), name, 1.0)
        metrics.retry(name, name)
    assert len(generate_latest(registry).splitlines()) < 600
