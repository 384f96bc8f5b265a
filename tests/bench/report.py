"""Figures against bars: a table with each figure's sample count and percentiles, the same as JSON, and an exit code."""

import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from core import clock

SERVER = ("fastapi", "uvicorn", "uvloop", "httptools")
SPINE = ("dramatiq", "redis", "hiredis", "psycopg", *SERVER, "celery", "procrastinate")


def say(text: str) -> None:
    """How far a long run is, with the time of day."""
    print(f"{clock.now():%H:%M:%S} {text} …", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that `share` (0–1] of all do not exceed. ValueError without values."""
    if not values:
        raise ValueError("no samples")
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Sample:
    """A series of measurements in one unit, and what was measured how."""

    name: str
    unit: str
    settings: str
    values: Sequence[float]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "settings": self.settings,
            "samples": len(self.values),
            "p50": percentile(self.values, 0.5),
            "p95": percentile(self.values, 0.95),
            "max": max(self.values),
        }


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must reach `bar`. NaN never passes."""

    key: str
    title: str
    value: float
    relation: Literal["≤", "≥"]
    bar: float
    unit: str = ""

    @property
    def passed(self) -> bool:
        return self.value <= self.bar if self.relation == "≤" else self.value >= self.bar

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "value": self.value if math.isfinite(self.value) else None,
            "bar": f"{self.relation} {self.bar:g}",
            "unit": self.unit,
            "passed": self.passed,
        }


def missed(name: str, control: Sequence[Bar], how: str) -> Bar:
    """A negative control: how many of the section's bars are missed without what they rest on; all must be."""
    count = sum(not bar.passed for bar in control)
    return Bar(f"control_{name}", f"bars of {name} missed {how}, of {len(control)}", count, "≥", len(control))


@dataclass(frozen=True, slots=True)
class Grid:
    """Figures that have no bar each: a row of values a name."""

    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]


@dataclass(slots=True)
class Report:
    """Collect with `samples`, `grids` and `bars`; then `show`, `write`, and exit with `exit_code`. `packages`: those whose
    versions are stated."""

    title: str
    settings: dict[str, str] = field(default_factory=dict[str, str])
    samples: list[Sample] = field(default_factory=list[Sample])
    bars: list[Bar] = field(default_factory=list[Bar])
    grids: list[Grid] = field(default_factory=list[Grid])
    packages: Sequence[str] = SPINE

    def time(self, name: str, settings: str, values: Sequence[float]) -> float:
        """Adds a sample in milliseconds; its p50."""
        self.samples.append(Sample(name, "ms", settings, values))
        return percentile(values, 0.5)

    @property
    def exit_code(self) -> int:
        """0 when there are bars and all passed, else 1."""
        return 0 if self.bars and all(bar.passed for bar in self.bars) else 1

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "passed": self.exit_code == 0,
            "settings": self.settings,
            "versions": versions(self.packages),
            "grids": [
                {"title": grid.title, "columns": list(grid.columns), "rows": {n: list(v) for n, v in grid.rows.items()}}
                for grid in self.grids
            ],
            "samples": [sample.as_json() for sample in self.samples],
            **{bar.key: bar.value if math.isfinite(bar.value) else None for bar in self.bars},
            "bars": {bar.key: bar.as_json() for bar in self.bars},
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def show(self, console: Console | None = None) -> None:
        console = console or Console(soft_wrap=True)
        console.print(f"[bold]{self.title}[/bold]")
        for name, value in {**self.settings, **versions(self.packages)}.items():
            console.print(f"  {name}: {value}", highlight=False)
        if self.samples:
            console.print(_sample_table(self.samples))
        for grid in self.grids:
            console.print(_grid_table(grid))
        console.print(_bar_table(self.bars))
        failed = [bar.key for bar in self.bars if not bar.passed]
        console.print(f"[red]Missed: {', '.join(failed)}[/red]" if failed else "[green]All bars passed.[/green]")


def versions(packages: Sequence[str] = SPINE) -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _sample_table(samples: Sequence[Sample]) -> Table:
    table = Table("measured", "settings", "n", "p50", "p95", "max", "unit")
    for sample in samples:
        found = sample.as_json()
        numbers = [f"{found[name]:,.2f}" for name in ("p50", "p95", "max")]
        table.add_row(sample.name, sample.settings, str(found["samples"]), *numbers, sample.unit)
    return table


def _grid_table(grid: Grid) -> Table:
    table = Table(grid.title, *grid.columns)
    for name, values in grid.rows.items():
        table.add_row(name, *(value if isinstance(value, str) else f"{value:,.2f}" for value in values))
    return table


def _bar_table(bars: Sequence[Bar]) -> Table:
    table = Table("key", "what", "value", "bar", "")
    for bar in bars:
        verdict = "[green]pass[/green]" if bar.passed else "[red]MISS[/red]"
        table.add_row(bar.key, bar.title, f"{bar.value:,.2f} {bar.unit}", f"{bar.relation} {bar.bar:g}", verdict)
    return table
