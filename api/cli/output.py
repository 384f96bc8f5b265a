"""How commands print: JSON and tables on standard output, what goes wrong on standard error."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

from core.errors import MunimentError


def print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))


def note(text: str) -> None:
    """For the person at the terminal, beside what a program may read from standard output."""
    print(text, file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """None is shown as nothing, a list as its items. Never cut: a terminal that is too narrow wraps."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 200))
    console.print(table)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[object]", value))
    return "" if value is None else str(value)


def print_items(items: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """A list of JSON objects: as JSON, or the fields named by `columns` as a table."""
    if as_json:
        print_json({"items": items})
    else:
        print_table(columns, ([item.get(column) for column in columns] for item in items))


def print_problem(error: MunimentError) -> None:
    """The problem in words, each wrong field on a line of its own."""
    note(
        f"{error.title} ({error.slug}): {error.detail}"
        if error.detail != error.title
        else f"{error.title} ({error.slug})"
    )
    if [f"{field.field}: {field.message}" for field in error.fields] == [error.detail]:
        return  # said already
    for field in error.fields:
        note(f"  {field.field}: {field.message}")
