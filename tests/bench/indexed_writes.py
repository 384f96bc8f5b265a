"""What the lexical index costs a write: bulk writing with it, and single writes with and without it.

There is no product without the index, so *without* is a store whose commits leave that one step out, in this process."""

import time
from collections.abc import Sequence
from itertools import chain
from unittest.mock import patch
from uuid import UUID

from core.faults import Faults
from core.records import service
from core.store.database import Database
from core.tenants.config import parse_config
from core.tenants.stores import put_store, store_id_of
from tests.bench import bulk
from tests.bench.report import Bar, Report, missed, percentile
from tests.bench.sentences import records
from tests.bench.stage import Stage, stage
from tests.fakes.memory import Memory

WRITES = 3_000
"""A store: enough for its loose records to be packed eleven times."""
CONTROL = 200
FEW_ITEMS = 4_000
SLOW = "writes.inserted=sleep:1:0.005"
SLOW_COMMIT = "commit.begin=sleep:1:1"


def run(
    found: Stage, report: Report, parts: Sequence[str], questions: Sequence[str], *, small: bool, controls: bool
) -> None:
    del questions
    texts = records(parts, WRITES // (10 if small else 1))
    with Database(found.dsn("app"), name="bench", size=2) as db:
        with_it, without = single(found, db, "single", texts, Faults())
        named = f"{len(texts):,} writes of 600 characters to each of two stores in turns; the commit alone, fsync on"
        report.time("single writes with the index", named, with_it)
        report.time("single writes without the index", named, without)
        report.bars.append(_single_bar(with_it, without))
        if controls:
            slow = single(found, db, "slow", texts[:CONTROL], Faults(SLOW))
            report.bars.append(missed("single_writes", [_single_bar(*slow)], f"under {SLOW}"))


def in_bulk(
    found: Stage, report: Report, parts: Sequence[str], questions: Sequence[str], *, small: bool, controls: bool
) -> None:
    """As the spine's benchmark measures it (tests/bench/bulk.py), with the same control."""
    del parts, questions
    bulk.run(found, report, items=FEW_ITEMS if small else bulk.ITEMS)
    if controls:
        slowed = Report("bulk")
        with stage() as other:
            other.faults = SLOW_COMMIT
            bulk.run(other, slowed, items=FEW_ITEMS)
        report.bars.append(missed("bulk", slowed.bars, f"under {SLOW_COMMIT}"))


def single(
    found: Stage, db: Database, name: str, texts: Sequence[str], faults: Faults
) -> tuple[list[float], list[float]]:
    """Milliseconds of each commit with the index, under `faults`, and without it."""
    tenant, _ = found.tenant(name)
    stores = {"indexed": _store(db, tenant, "indexed"), "bare": _store(db, tenant, "bare")}
    times: dict[str, list[float]] = {store: [] for store in stores}
    for text, (store, memory) in chain.from_iterable(zip([text] * 2, stores.items(), strict=True) for text in texts):
        claims = memory.claim([("write", {"text": text})])
        with patch.object(service, "append", service.append if store == "indexed" else _leave_out):
            began = time.perf_counter()
            done = service.commit_writes(db, claims, faults if store == "indexed" else Faults())
            times[store].append((time.perf_counter() - began) * 1_000)
        if done.endings[0].state != "succeeded":
            raise RuntimeError(f"a write failed: {done.endings[0].error}")
    return times["indexed"], times["bare"]


def _store(db: Database, tenant: UUID, store: str) -> Memory:
    with db.tenant(tenant) as tx:
        put_store(tx, tenant, store, parse_config(bulk.CONFIGURATION))
        return Memory(db, tenant, store_id_of(tx, tenant, store), store)


def _leave_out(*_: object) -> None:
    """In place of the index's part of a commit."""


def _single_bar(with_it: Sequence[float], without: Sequence[float]) -> Bar:
    ratio = percentile(with_it, 0.95) / percentile(without, 0.95)
    return Bar("single_write_ratio", "single writes' p95 with the index over that without", ratio, "≤", 1.5)
