"""The named statements of `sql/queries`, loaded once per process."""

from functools import cache
from importlib.resources import files
from typing import Any

import aiosql


@cache
def queries() -> Any:
    """aiosql's object: a method a named statement, the connection first, then the named parameters."""
    loader: Any = aiosql
    return loader.from_path(str(files("sql") / "queries"), "psycopg", mandatory_parameters=False)


def script(name: str) -> str:
    """The text of a file below `sql/`."""
    return (files("sql") / name).read_text("utf-8")


def scripts(folder: str) -> list[tuple[str, str]]:
    """(name, text) of every .sql file of a folder below `sql/`, by name."""
    found = [entry for entry in (files("sql") / folder).iterdir() if entry.name.endswith(".sql")]
    return [(entry.name, entry.read_text("utf-8")) for entry in sorted(found, key=lambda entry: entry.name)]
