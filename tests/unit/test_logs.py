"""A log during an outage: one line when it begins, one when it ends, and few in between."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from core.errors import JobFailed, Unavailable
from workers import logs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    monkeypatch.setattr(logs, "monotonic", lambda: moment[0])
    return moment


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def begun(form: str = "json") -> logging.Logger:
    """Of a process whose log has just been set up."""
    logs.configure(form)
    return logging.getLogger("workers.here")


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_what_is_said_again_and_again_is_counted(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    log = begun()
    for _ in range(600):
        log.warning("Redis is away: %s", "refused")
        clock[0] += 0.1
    log.warning("Redis is back")
    lines = said(capsys)
    assert [line["event"] for line in lines] == ["Redis is away: refused", "Redis is away: refused", "Redis is back"]
    assert [line.get("repeated") for line in lines] == [None, 299, None]


def test_lines_that_differ_in_their_values_are_bounded_too(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    log = begun()
    for n in range(500):
        log.error("job %d failed", n)
        log.info("job %d was taken", n)
    clock[0] += logs.REPEAT_SECONDS
    log.error("job %d failed", 500)
    lines = said(capsys)
    errors = [line for line in lines if line["level"] == "error"]
    assert [line["event"] for line in errors] == [f"job {n} failed" for n in [*range(logs.ALIKE), 500]]
    assert errors[-1]["repeated"] == 500 - logs.ALIKE
    assert len(lines) - len(errors) == 500, "what is no trouble is never held back"


def test_a_library_that_names_its_connections_says_it_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = begun()
    for n in range(5):
        logging.getLogger("psycopg.pool").warning("discarding closed connection: <psycopg.Connection at %x>", n)
        logging.getLogger("psycopg.pool").warning("error connecting in %r: refused", "muniment-api")
        log.critical("a worker thread ended")
    assert [line["level"] for line in said(capsys)] == ["warning", "warning", *["critical"] * 5]


def test_another_error_behind_the_same_words_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    log = begun()
    errors = [Unavailable("refused"), Unavailable("refused"), KeyError("queue"), KeyError("store"), KeyError("queue")]
    for error in errors:
        log.error("the relay met an error and goes on", exc_info=error)
    lines = said(capsys)
    assert [line.get("error") or line["exception"].splitlines()[-1] for line in lines] == [
        "Unavailable: refused",
        "KeyError: 'queue'",
        "KeyError: 'store'",
    ]


@pytest.mark.parametrize("error", [Unavailable("Postgres: refused"), redis.ConnectionError("refused")])
def test_a_known_outage_has_no_traceback(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    log = begun()
    try:
        raise error
    except Exception:
        log.exception("a claim failed")
    (line,) = said(capsys)
    assert "exception" not in line
    assert line["error"] == f"{type(error).__name__}: {error}"


def test_a_defect_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    log = begun()
    try:
        raise JobFailed("nobody foresaw it")
    except JobFailed:
        log.exception("a claim failed")
    (line,) = said(capsys)
    assert "Traceback" in line["exception"]


def test_a_line_of_text_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = begun("text")
    log.warning("error connecting: refused\n\tIs the server running?\n")
    assert capsys.readouterr().err.endswith("workers.here: error connecting: refused Is the server running?\n")
