"""Texts and numbers of foreign JSON, made safe to store. Every function takes anything and never raises."""

import re
from datetime import UTC, datetime
from typing import cast

_LABEL_POINTS = 120
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_LATEST = 253402300799  # 9999-12-31T23:59:59Z


def clean(text: str) -> str:
    """`text` as the store takes it: surrogate pairs joined (CESU-8 leaves them), lone ones and NUL become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "\ufffd")


def label(text: str) -> str:
    """A short one-line form of a name from the archive, for reports."""
    line = _CONTROL.sub(" ", clean(text))
    return line if len(line) <= _LABEL_POINTS else line[: _LABEL_POINTS - 1] + "…"


def fields(value: object) -> dict[str, object]:
    """A JSON object's fields; anything else has none."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """A JSON array's items; anything else has none."""
    return cast("list[object]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """A JSON string; anything else is empty."""
    return value if isinstance(value, str) else ""


def epoch_time(value: object) -> datetime | None:
    """Seconds since 1970 (UTC) as an aware time; None for null, zero, and whatever is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LATEST:
        return None
    return datetime.fromtimestamp(value, UTC)
