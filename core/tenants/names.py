"""Names of tenants, keys and stores."""

import re

from core.errors import InvalidRequest
from core.text import check_text

NAME_POINTS = 100
STORE_PATTERN = "^[a-z0-9][a-z0-9_-]{0,62}$"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STORE = re.compile(STORE_PATTERN[1:-1], re.ASCII)


def check_name(name: str, field: str = "name") -> None:
    """A person's name for a tenant or a key: 1–100 points, no control characters. Raises InvalidRequest."""
    check_text(name, field)
    if not 1 <= len(name) <= NAME_POINTS or _CONTROL.search(name):
        raise InvalidRequest.field(field, f"must be 1 to {NAME_POINTS} characters without control characters")


def is_store_name(name: str) -> bool:
    return _STORE.fullmatch(name) is not None


def check_store_name(name: str, field: str = "store") -> None:
    """Raises InvalidRequest unless it is a store's name (contract.md, Routes)."""
    if not is_store_name(name):
        raise InvalidRequest.field(field, "must be 1 to 63 of a-z, 0-9, _ and -, and begin with a letter or a digit")
