"""What of the command line needs no service: its start, its logs, its way to show a quote."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.cli.evidence import Line, lines
from api.cli.jobs import describe
from api.cli.logtail import LogTail, last_lines
from core.records.packing import pack
from tests.cli import ROOT, invoke, muniment
from workers import logs

HEAVY = ("fastapi", "starlette", "uvicorn", "dramatiq", "redis", "psycopg", "httpx", "pydantic", "structlog", "yoyo")


def test_help_names_every_command_and_loads_nothing_heavy() -> None:
    script = f"import sys, api.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
    shown = muniment("--help")
    assert shown.returncode == 0
    for command in (
        "up", "demo", "write", "read", "search", "import", "records", "jobs", "stores", "api", "worker", "relay", "exporter",
        "migrate", "doctor", "tenants", "keys", "queues",
    ):  # fmt: skip
        assert re.search(rf"^\W+{command}\s", shown.stdout, re.MULTILINE), command


def test_version_is_printed() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", invoke("--version").stdout)


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


SECRET = "mun_" + "s3cret-" * 6 + "x"


def test_log_lines_are_json_and_hold_no_secret(root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json")
    log = logging.getLogger("workers.here")
    log.info("lost postgresql://app:hunter2@db:5432/x with key %s", SECRET, extra={"job": "j1"})
    try:
        raise ValueError(f"redis://:hunter2@cache:1/0 {SECRET}")
    except ValueError:
        log.exception("it broke")
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert list(first)[:3] == ["time", "level", "logger"]
    assert (first["level"], first["logger"], first["job"]) == ("info", "workers.here", "j1")
    assert first["event"] == "lost postgresql://app:…@db:5432/x with key mun_…"
    assert "ValueError: redis://:…@cache:1/0 mun_…" in second["exception"]


def test_text_logs_are_for_a_person_and_hold_no_secret(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("text")
    logging.getLogger("workers.here").warning("key %s", SECRET, extra={"n": 3, "color_message": "twice"})
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING  workers\.here: key mun_… n=3\n", line)


def test_a_log_is_followed_line_by_line_from_its_end(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("before\n")
    tail = LogTail({"old": old, "new": new})
    assert list(tail.lines()) == []
    with old.open("a") as stream:
        stream.write("one\ntw")
    new.write_text("first\n")
    assert list(tail.lines()) == [("old", "one"), ("new", "first")]
    with old.open("a") as stream:
        stream.write("o\n")
    assert list(tail.lines()) == [("old", "two")]
    assert last_lines(old, 2) == ["one", "two"]
    assert last_lines(tmp_path / "none", 2) == []


class Said:
    def __init__(self, role: str, content: str) -> None:
        self.role, self.content, self.at = role, content, None


def test_a_quote_tells_who_said_what_also_when_words_look_like_a_role() -> None:
    talk = [Said("user", "Note: buy\n\nmilk"), Said("assistant", "user: you wrote that. " + "Words go on. " * 60)]
    messages = [{"role": one.role, "content": one.content} for one in talk]
    first, second = (chunk.text for chunk in pack(talk, "s1").chunks)
    assert lines(first, messages)[0] == Line("user", "Note: buy milk")
    said = [*lines(first, messages)[1:], *lines(second, messages)]
    assert said[0].who == "assistant"
    assert said[0].said.startswith("user: you wrote that. Words go on.")
    assert all(line.who == "" and line.said.startswith("… ") for line in said[1:])
    assert len(said) >= 2


def test_a_text_that_is_no_conversation_is_quoted_whole() -> None:
    assert lines("a: b\nc", []) == [Line("", "a: b\nc")]


def test_a_jobs_progress_is_one_line() -> None:
    job = {"state": "running", "attempt": 2, "progress": {"done": 40, "total": 120, "unit": "messages"}}
    assert describe(job) == "running, attempt 2, 40 of 120 messages"
    assert describe({"state": "deferred", "reason": "unknown-kind"}) == "deferred, unknown-kind"
