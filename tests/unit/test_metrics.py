"""Labels stay bounded, children exist from the start, and the server answers only what it should."""

import httpx
import pytest
from prometheus_client import CollectorRegistry

from core.settings import SettingsError
from workers.metrics import WorkerMetrics, parse_bind, serve_metrics


def series(registry: CollectorRegistry) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {
        (sample.name, frozenset(sample.labels.items())) for family in registry.collect() for sample in family.samples
    }


def test_ten_thousand_odd_names_make_no_new_series() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    before = series(registry)
    for n in range(10_000):
        metrics.finished(f"queue-{n}", f"outcome-{n}", 0.1, 0.1)
        metrics.swept("read.interactive", f"reason-{n}")
        metrics.retried(f"queue-{n}")
        metrics.lease_lost(f"queue-{n}")
        metrics.sent(f"queue-{n}", 3)
        metrics.resent(f"queue-{n}")
    assert series(registry) == before
    assert registry.get_sample_value("muniment_jobs_total", {"queue": "other", "outcome": "other"}) == 10_000
    assert registry.get_sample_value("muniment_swept_total", {"queue": "read.interactive", "reason": "other"}) == 10_000
    assert registry.get_sample_value("muniment_wakeups_sent_total", {"queue": "other"}) == 30_000


def test_what_was_counted_is_shown_under_its_queue() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry, pool_waiting=lambda: 3)
    metrics.finished("write.interactive", "succeeded", -0.5, 2.0)
    labels = {"queue": "write.interactive"}
    assert registry.get_sample_value("muniment_jobs_total", {**labels, "outcome": "succeeded"}) == 1
    assert registry.get_sample_value("muniment_jobs_total", {"queue": "write.bulk", "outcome": "succeeded"}) == 0
    assert registry.get_sample_value("muniment_job_wait_seconds_sum", labels) == 0, "clocks differ: never below 0"
    assert registry.get_sample_value("muniment_job_run_seconds_sum", labels) == 2
    assert registry.get_sample_value("muniment_pool_waiting") == 3


def test_the_server_shows_metrics_health_and_readiness() -> None:
    registry = CollectorRegistry()
    WorkerMetrics(registry)
    reasons: list[str] = []
    with (
        serve_metrics("127.0.0.1:0", registry, lambda: reasons) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=5) as client,
    ):
        assert "muniment_jobs_total" in client.get("/metrics").text
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").json() == {"ready": True, "reasons": []}
        reasons.append("no thread is left")
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["reasons"] == ["no thread is left"]
        assert client.get("/healthz").status_code == 200
        assert client.get("/other").status_code == 404


def test_a_taken_address_is_named() -> None:
    with serve_metrics("127.0.0.1:0", CollectorRegistry(), list) as server:
        bind = f"127.0.0.1:{server.port}"
        with pytest.raises(SettingsError, match=bind):
            serve_metrics(bind, CollectorRegistry(), list)


@pytest.mark.parametrize(
    ("bind", "parsed"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), (":9", ("0.0.0.0", 9)), ("[::1]:65535", ("::1", 65535)), ("h:0", ("h", 0))],
)
def test_addresses(bind: str, parsed: tuple[str, int]) -> None:
    assert parse_bind(bind) == parsed


@pytest.mark.parametrize("bind", ["", "localhost", "localhost:", "localhost:http", "localhost:65536", "h:-1", "h:²"])
def test_what_is_no_address_is_refused(bind: str) -> None:
    with pytest.raises(SettingsError):
        parse_bind(bind)
