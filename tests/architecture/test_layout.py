"""The layout's rules that no other tool holds (CONTRIBUTING.md, Rules)."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "core", "sql", "workers")
SQL = re.compile(
    r"\s*(select\s.+\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from|create\s+(table|index|role))\s", re.IGNORECASE
)


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sql_text_in_python(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    found = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    ]
    assert not found, "statements are named in sql/queries"


def test_the_sql_rule_would_see_a_statement() -> None:
    assert SQL.match("select a from b where c")
    assert SQL.match("  insert into jobs values (1)")
    assert not SQL.match("Choose a store from the list")


def test_files_can_be_read_in_one_sitting() -> None:
    limits = {**dict.fromkeys(sources(*PACKAGES), 400), **dict.fromkeys(sources("tests"), 600)}
    long = {
        str(path): lines for path, most in limits.items() if (lines := len(path.read_text("utf-8").splitlines())) > most
    }
    assert not long


def test_every_statement_of_a_tenant_table_names_the_tenant() -> None:
    """In the queries that the app role runs: the relay's and the operators' see all tenants on purpose."""
    tables = (
        "stores|jobs|job_payloads|job_results|idempotency_keys|documents|records|messages|erasures|imports|uploads|"
    )
    tables += "budget_entries|budget_spenders|budget_usage"
    fleet = {
        "relay.sql",
        "operations.sql",
        "tenants.sql",
        "keys.sql",
        "migrate.sql",
        "session.sql",
        "doctor.sql",
        "backlog.sql",
    }
    for path in sorted((ROOT / "sql" / "queries").glob("*.sql")):
        if path.name in fleet:
            continue
        for statement in re.split(r"(?m)^-- name: ", path.read_text("utf-8"))[1:]:
            if re.search(rf"\b(from|into|update|join)\s+({tables})\b", statement):
                assert "tenant_id" in statement, f"{path.name}: {statement.splitlines()[0]}"


@pytest.mark.parametrize(
    "command",
    [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["lint-imports"], ["basedpyright"]],
    ids=["format", "lint", "layers", "types"],
)
def test_checks_pass(command: list[str]) -> None:
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
