"""The alert rules: tested by promtool, and about metrics that exist (failure-cases.md N1, H6)."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from prometheus_client import CollectorRegistry

from api.metrics import Metrics
from core.budget.caps import Total
from core.budget.model import Spender
from core.jobs.backlog import QueueBacklog
from core.models.attempt import SETTLE_SECONDS, START_SECONDS
from core.models.profiles import LARGEST_TIMEOUT
from core.settings import Settings
from workers.exporter import BacklogCollector, Snapshot
from workers.metrics import WorkerMetrics
from workers.model_metrics import OUTCOMES, ModelMetrics

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (apt-get install prometheus)"
)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def known_series() -> dict[str, set[str]]:
    """Every series name that our processes may show, with its labels."""
    registry = CollectorRegistry()
    WorkerMetrics(registry)
    models = ModelMetrics(registry)
    models.watch(list)
    models.attempt("jev", Spender(UUID(int=1), None, None, "judge", "read"), "ok", 1.0)
    empty = QueueBacklog("write.bulk", 0, 0, 0, 0, 0, 0, 0, 0, 0)
    collector = BacklogCollector(lambda: Snapshot([empty], [], 0, 0, 0, [Total("jev", "USD", 10, 0, 0, 0.0)]))
    found: dict[str, set[str]] = {}
    for family in (*registry.collect(), *Metrics().registry.collect(), *collector.collect()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    collector.close()
    return found


@needs_promtool
def test_the_rules_pass_their_own_tests() -> None:
    outcome = subprocess.run(
        ["promtool", "test", "rules", "rules_test.yml"],
        cwd=RULES.parent, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@needs_promtool
def test_a_rule_that_is_wrong_fails_them(tmp_path: Path) -> None:
    broken = RULES.read_text().replace("muniment_exporter_up == 0", "muniment_exporter_up == 2")
    (tmp_path / "rules.yml").write_text(broken)
    shutil.copy(RULES.with_name("rules_test.yml"), tmp_path)
    outcome = subprocess.run(
        ["promtool", "test", "rules", "rules_test.yml"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert outcome.returncode != 0


@needs_promtool
def test_prometheus_takes_its_configuration() -> None:
    outcome = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"],
        cwd=RULES.parent, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_metric_in_a_rule_exists() -> None:
    known = known_series()
    used = {name for rule in rules() for name in re.findall(r"\bmuniment_[a-z_]+\b", rule["expr"])}
    assert used, "the rules name no metric"
    assert used <= known.keys(), f"no process shows {used - known.keys()}"


def test_every_label_in_a_rule_exists() -> None:
    known = known_series()
    for rule in rules():
        for name, matchers in re.findall(r"(muniment_[a-z_]+)\{([^}]*)\}", rule["expr"]):
            assert set(re.findall(r"(\w+)\s*=", matchers)) <= known[name], rule["alert"]


def test_outcomes_that_rules_name_exist() -> None:
    named = {
        outcome
        for rule in rules()
        for matched in re.findall(r'muniment_model_attempts_total\{[^}]*outcome!?[=~]+"([^"]*)"', rule["expr"])
        for outcome in matched.split("|")
    }
    assert {"ok", "budget-spent"} <= named <= OUTCOMES


def test_a_reservation_leaks_when_it_is_older_than_any_call_can_be() -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == "ReservationsLeaking"]
    oldest = LARGEST_TIMEOUT + START_SECONDS + SETTLE_SECONDS + Settings().lease_seconds
    assert float(rule["expr"].rpartition(">")[2]) == oldest


def test_every_alert_has_a_runbook_and_a_test() -> None:
    tests = yaml.safe_load(RULES.with_name("rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"] for entry in tests for case in entry.get("alert_rule_test", []) if case.get("exp_alerts")
    }
    quiet = {case["alertname"] for entry in tests for case in entry.get("alert_rule_test", [])}
    for rule in rules():
        assert (DEPLOY.parent / rule["annotations"]["runbook_url"]).is_file(), rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["alert"] in (quiet if rule["alert"].startswith("Bulk") else fired), rule["alert"]


def test_no_runbook_is_left_without_an_alert_or_links_to_nothing() -> None:
    wanted = {Path(rule["annotations"]["runbook_url"]).name for rule in rules()}
    books = {book.name: book.read_text() for book in (DEPLOY / "runbooks").glob("*.md")}
    assert books.keys() == wanted
    for text in books.values():
        assert {link for link in re.findall(r"\]\(([^)]+)\)", text)} <= books.keys()
