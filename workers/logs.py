"""One log for a process: JSON lines, or text for a person, on standard error. Passwords and keys never reach it."""

import json
import logging
import re
import sys
import threading
from collections.abc import MutableMapping
from typing import Any

import redis
import structlog

from core.clock import monotonic
from core.errors import Unavailable

_SECRETS = (
    (re.compile(r"(\w+://[^\s:/@]*:)[^\s@/]+@"), r"\1…@"),  # the password of an address
    (re.compile(r"\bmun_[A-Za-z0-9_-]{8,}"), "mun_…"),
)
_LEVEL = 8
REPEAT_SECONDS = 30.0
"""For so long a warning or an error is not said again; how often it came meanwhile goes with the next one."""
ALIKE = 20
"""Of those that differ only in their values, such as job ids, the most in that time."""
_REMEMBERED = 1_000
_KNOWN = (Unavailable, redis.ConnectionError, redis.TimeoutError)
"""A service is away: where in the code that was met tells nobody anything."""
_TALKATIVE = ("httpx", "httpcore")
"""They log what an endpoint answers, down to the words after its status; and it may answer with the key it was sent."""


def configure(form: str, level: int = logging.INFO) -> None:
    """Sends every record of this process, ours and the libraries', to standard error. `form`: `json` or `text`."""
    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _known_without_traceback,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _without_colours,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(Once())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _text_line if form == "text" else _json_line,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


class Once(logging.Filter):
    """Keeps what retries say again and again during an outage from burying everything else.

    A warning or an error that has just been said, with the same exception, is counted instead, and the count goes with the
    next one as `repeated`; of those that differ in their values alone some more pass. Critical ones always do."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._said: dict[tuple[str, ...], tuple[float, int, int]] = {}  # since when, how many passed, how many did not

    def filter(self, record: logging.LogRecord) -> bool:
        if not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        alike = 1 if record.name.startswith("psycopg") else ALIKE  # its values are addresses of connections
        error = record.exc_info[1] if record.exc_info else None
        kind = type(error).__qualname__
        with self._lock:
            held = self._passes((record.name, record.getMessage(), kind, str(error)), 1)
            if held is None or (more := self._passes((record.name, str(record.msg), kind), alike)) is None:
                return False
        if held + more:
            record.__dict__["repeated"] = held + more
        return True

    def _passes(self, key: tuple[str, ...], most: int) -> int | None:
        """None: not now. Else how many were held back since one last passed."""
        moment = monotonic()
        since, passed, held = self._said.get(key, (moment, 0, 0))
        if moment - since >= REPEAT_SECONDS:
            since, passed = moment, 0
        if passed >= most:
            self._said[key] = (since, passed, held + 1)
            return None
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[key] = (since, passed + 1, 0)
        return held


def without_secrets(text: str) -> str:
    """The text without passwords in addresses and without keys."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def _without_colours(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Uvicorn says everything twice, once for terminals."""
    del logger, method
    entry.pop("color_message", None)
    return entry


def _known_without_traceback(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    del logger, method
    trace: Any = entry.get("exc_info")  # as logging has it: (class, error, traceback)
    error: object = trace[1] if trace else None
    if isinstance(error, _KNOWN):
        del entry["exc_info"]
        entry["error"] = f"{type(error).__name__}: {error}"
    return entry


def _json_line(logger: object, method: str, entry: MutableMapping[str, Any]) -> str:
    del logger, method
    ordered = {"time": entry.pop("time"), "level": entry.pop("level"), "logger": entry.pop("logger"), **entry}
    return without_secrets(json.dumps(ordered, ensure_ascii=False, default=str))


def _text_line(logger: object, method: str, entry: MutableMapping[str, Any]) -> str:
    """`2026-11-30 14:05:09 WARNING  workers.relay: message name=value`, a traceback below it."""
    del logger, method
    moment = str(entry.pop("time"))[:19].replace("T", " ")
    level, name, event = str(entry.pop("level")).upper(), entry.pop("logger"), " ".join(str(entry.pop("event")).split())
    trace = entry.pop("exception", "")
    more = "".join(f" {key}={value}" for key, value in entry.items())
    return without_secrets(f"{moment} {level:<{_LEVEL}} {name}: {event}{more}" + (f"\n{trace}" if trace else ""))
