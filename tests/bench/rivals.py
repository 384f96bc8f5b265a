"""The frozen ranking beside other programs on the same records and words: speed, and who finds the exact best 10."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core.search.bm25 import rank, searchable_text
from core.search.fusion import DEPTH
from core.search.lexical.service import LexicalIndex
from core.search.tokens import tokens
from core.store.database import Tx
from tests.bench.peers.lexical import PEERS, LexicalPeer
from tests.bench.places import INDEX_BYTES, Place
from tests.bench.report import Grid, Report, percentile, say

BEST = 10
CHECKED = 5
"""Questions whose scores are compared with the literal ranking's in the first store: a second each at 10,000 records."""
FEW = 25
"""Questions for a peer that takes longer than SLOW_MS each."""
SLOW_MS = 50.0

Scores = np.ndarray[Any, Any]


def run(report: Report, places: Mapping[str, Place]) -> None:
    rows: dict[str, Sequence[float | str]] = {}
    for number, (store, place) in enumerate(places.items()):
        canonicals = _canonicals(place)
        documents = [tokens(searchable_text(json.loads(canonical))) for canonical in canonicals]
        with place.db.tenant(place.door.tenant) as tx:
            ours = _Ours(tx, place)
            exact = [ours.asked(question, DEPTH).every for question in place.questions]
            rows[f"Muniment, {store}"] = _row(ours, place.questions, exact, "in Postgres")
            if not number:
                _check(canonicals, ours, place.questions[:CHECKED])
        for kind in PEERS:
            peer = kind()
            say(f"{peer.name}, {store}")
            began = time.perf_counter()
            peer.build(documents)
            built = f"{time.perf_counter() - began:.1f} s"
            rows[f"{peer.name}, {store}"] = _row(peer, place.questions, exact, built)
    columns = ["p50 ms", "p95 ms", f"overlap@{BEST} with exact", "questions", "built in"]
    report.grids.append(Grid(f"Beside others, version 1's words, best {BEST}, warm", columns, rows))


class _Ours:
    """In an open transaction, as the ranking is timed elsewhere."""

    def __init__(self, tx: Tx, place: Place) -> None:
        self._tx = tx
        self._place = place
        self._index = LexicalIndex(INDEX_BYTES)

    def asked(self, query: str, k: int | None) -> Any:
        place = self._place
        return self._index.search(self._tx, place.door.tenant, place.store_id, query, version=1, limit=k)

    def best(self, query: str, k: int) -> list[int]:
        found = self.asked(query, k)
        assert len(found.ids) == len(found.numbers)
        return found.numbers.tolist()


def _row(
    peer: LexicalPeer | _Ours, questions: Sequence[str], exact: Sequence[Scores], built: str
) -> Sequence[float | str]:
    """Each question once unmeasured, then once measured."""
    chosen = range(0, len(questions), len(questions) // FEW if _slow(peer, questions) else 1)
    found = [peer.best(questions[n], BEST) for n in chosen]
    times: list[float] = []
    for n in chosen:
        began = time.perf_counter()
        peer.best(questions[n], BEST)
        times.append((time.perf_counter() - began) * 1_000)
    same = sum(overlap(numbers, exact[n]) for n, numbers in zip(chosen, found, strict=True)) / len(chosen)
    return [percentile(times, 0.5), percentile(times, 0.95), same, str(len(times)), built]


def _slow(peer: LexicalPeer | _Ours, questions: Sequence[str]) -> bool:
    began = time.perf_counter()
    for question in questions[:3]:
        peer.best(question, BEST)
    return (time.perf_counter() - began) * 1_000 / 3 > SLOW_MS


def overlap(numbers: Sequence[int], exact: Scores) -> float:
    """The share of the best 10 that is found; records of equal scores stand in for each other."""
    edge = float(np.partition(exact, len(exact) - BEST)[len(exact) - BEST])
    return sum(float(exact[number]) >= edge > 0 for number in numbers) / BEST


def _check(canonicals: Sequence[str], ours: _Ours, questions: Sequence[str]) -> None:
    """Raises RuntimeError when a score is not the literal ranking's to the last bit."""
    loaded = [json.loads(canonical) for canonical in canonicals]
    documents = [(record["id"], searchable_text(record)) for record in loaded]
    for question in questions:
        found = ours.asked(question, None)
        if rank(question, documents) != list(zip(found.ids, found.scores.tolist(), strict=True)):
            raise RuntimeError(f"not the frozen scores: {question}")


def _canonicals(place: Place) -> list[str]:
    with place.door.stage.admin() as admin:
        rows = admin.execute(
            b"select canonical from records where tenant_id = %s and store_id = %s order by number",
            (place.door.tenant, place.store_id),
        ).fetchall()
    return [row[0] for row in rows]
