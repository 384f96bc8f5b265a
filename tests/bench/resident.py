"""What a worker holds after 1,000 mixed searches over 50 stores of 10,000 records: no more than its settings say.

The caches are set far below what the 50 stores take, so that the settings bind. Counted is the growth of resident memory
from a worker that has searched a store of ten records, so the program and the model are not in it."""

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.engines import database, embedded, give, mixed
from tests.bench.front import Front, batches, front
from tests.bench.report import Bar, Report, Sample, missed, say
from tests.bench.sentences import records
from tests.bench.stage import Stage

STORES, RECORDS, SEARCHES = 50, 10_000, 1_000
CONTROL = 200
"""Searches: larger caches are over the bound long before the thousandth."""
MIB = 1024 * 1024
EMBEDDED = 500
BOUND = {"index_cache_bytes": 64 * MIB, "vector_cache_bytes": 128 * MIB}
SMALL = {"index_cache_bytes": 8 * MIB, "vector_cache_bytes": 25 * MIB}
LOOSE = {"index_cache_bytes": 512 * MIB, "vector_cache_bytes": 2_048 * MIB}
INDEX = {"version": 2, "lexical": True, "entities": True, "temporal": True}
TINY = "tiny"
ROUTES: tuple[Mapping[str, Any], ...] = (
    {}, {}, {"routes": ["lexical"]}, {"routes": ["vectors"]}, {"revision": 5_000}, {"k": 100, "explain": True},
)  # fmt: skip


ROUNDING = 1.1
"""What the allocator and the connections keep beside the caches' own bytes."""


def run(
    stage: Stage, report: Report, parts: Sequence[str], questions: Sequence[str], *, small: bool, controls: bool
) -> None:
    stores = STORES // (25 if small else 1)
    limits = SMALL if small else BOUND
    tenant = stage.tenant("memory")
    with front(stage, tenant, **_as_settings(limits)) as door:
        _load(door, report, parts, stores)
        growth, times = _searched(door, stores, questions, CONTROL if small else SEARCHES)
    allowed = ROUNDING * sum(limits.values()) / MIB
    settings = ", ".join(f"{name} {size // MIB} MiB" for name, size in limits.items())
    named = f"{stores} stores of {RECORDS:,} records, {settings}, one client"
    report.samples.append(Sample("mixed searches: POST …/searches", "ms", named, times))
    report.bars.append(_bar(growth, allowed))
    if controls:
        with front(stage, tenant, **_as_settings(LOOSE)) as door:
            control = [_bar(_searched(door, stores, questions, CONTROL)[0], allowed)]
        report.bars.append(missed("memory", control, "by a worker with larger caches"))


def _load(door: Front, report: Report, parts: Sequence[str], stores: int) -> None:
    """All stores hold the same texts, so that each text needs one vector; in memory they share nothing."""
    texts = records(parts, RECORDS)
    contents = batches(texts)
    names = [*(f"store-{n}" for n in range(stores)), TINY]
    for name in names:
        door.put(name, {"index": INDEX, "embedding": None})
    began = time.monotonic()
    door.load(TINY, batches(texts[:10]), 10)
    for name in names[:-1]:
        say(f"loading {name}")
        door.load(name, contents, RECORDS)
    seconds = time.monotonic() - began
    report.samples.append(
        Sample(
            f"loading {stores} stores through memories:batch",
            "items/s",
            "a store after the other",
            [stores * RECORDS / seconds],
        )
    )
    say("vectors")
    with database(door) as db:
        give(door, db, names[0], mixed(embedded(texts[:EMBEDDED]), RECORDS))
    for name in names:
        door.put(name, {"index": INDEX, "embedding": "builtin"})
    door.settle()


def _searched(door: Front, stores: int, questions: Sequence[str], searches: int) -> tuple[float, list[float]]:
    """MiB that the worker grew by, and each search's milliseconds."""
    chance = random.Random(0)
    for question in questions:
        door.search(TINY, question)
    before = _resident(door.workers["model"].pid)
    say("searches")
    times: list[float] = []
    for n in range(searches):
        more = dict(ROUTES[n % len(ROUTES)])
        times.append(
            door.timed(door.search_message(f"store-{chance.randrange(stores)}", chance.choice(questions), **more))
        )
    return _resident(door.workers["model"].pid) - before, times


def _bar(growth: float, allowed: float) -> Bar:
    what = f"resident memory that mixed searches cost a worker, against {ROUNDING} × (index_cache_bytes + vector_cache_bytes)"
    return Bar("worker_growth_mib", what, growth, "≤", allowed, "MiB")


def _resident(pid: int) -> float:
    """In MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024


def _as_settings(limits: Mapping[str, int]) -> dict[str, str]:
    return {name: str(size) for name, size in limits.items()}
