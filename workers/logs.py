"""One log for a process: JSON lines, or text for a person, on standard error. Passwords and keys never reach it."""

import json
import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRETS = (
    (re.compile(r"(\w+://[^\s:/@]*:)[^\s@/]+@"), r"\1…@"),  # the password of an address
    (re.compile(r"\bmun_[A-Za-z0-9_-]{8,}"), "mun_…"),
)
_LEVEL = 8
_TALKATIVE = ("httpx", "httpcore")
"""They log what an endpoint answers, down to the words after its status; and it may answer with the key it was sent."""


def configure(form: str, level: int = logging.INFO) -> None:
    """Sends every record of this process, ours and the libraries', to standard error. `form`: `json` or `text`."""
    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        _without_colours,
    ]
    handler = logging.StreamHandler(sys.stderr)
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


def _json_line(logger: object, method: str, entry: MutableMapping[str, Any]) -> str:
    del logger, method
    ordered = {"time": entry.pop("time"), "level": entry.pop("level"), "logger": entry.pop("logger"), **entry}
    return without_secrets(json.dumps(ordered, ensure_ascii=False, default=str))


def _text_line(logger: object, method: str, entry: MutableMapping[str, Any]) -> str:
    """`2026-11-30 14:05:09 WARNING  workers.relay: message name=value`, a traceback below it."""
    del logger, method
    moment = str(entry.pop("time"))[:19].replace("T", " ")
    level, name, event = str(entry.pop("level")).upper(), entry.pop("logger"), entry.pop("event")
    trace = entry.pop("exception", "")
    more = "".join(f" {key}={value}" for key, value in entry.items())
    return without_secrets(f"{moment} {level:<{_LEVEL}} {name}: {event}{more}" + (f"\n{trace}" if trace else ""))
