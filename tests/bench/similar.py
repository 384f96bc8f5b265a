"""Vector search in a store among others, by the vectors that its records were given: how fast, and whether exact."""

import time
from collections.abc import Sequence

import numpy as np

from core.search.vectors.cache import VectorCache
from tests.bench.engines import SPACE, Vectors, clustered, database, give
from tests.bench.front import batches, front
from tests.bench.places import VECTOR_BYTES
from tests.bench.report import Bar, Report, missed, percentile
from tests.bench.sentences import records
from tests.bench.stage import Stage

OWN, OTHERS, STORES = 2_000, 5_000, 10
CLUSTERS = 40
NEAR = 10
CONFIG = {"index": {"version": 2, "lexical": True}, "embedding": None}


def run(
    stage: Stage, report: Report, parts: Sequence[str], questions: Sequence[str], *, small: bool, controls: bool
) -> None:
    """`small` changes nothing: these are few."""
    del small
    sizes = {"own": OWN, **{f"other-{n}": OTHERS // STORES for n in range(STORES)}}
    vectors = {store: clustered(CLUSTERS, size, seed) for seed, (store, size) in enumerate(sizes.items(), 1)}
    queries = clustered(CLUSTERS, len(questions), 99)
    with front(stage, stage.tenant("vectors")) as door, database(door) as db:
        for seed, (store, size) in enumerate(sizes.items()):
            door.put(store, CONFIG)
            door.load(store, batches(records(parts, size, seed)), size)
            give(door, db, store, vectors[store])
            door.put(store, {**CONFIG, "embedding": "builtin"})
        door.settle()
        place = (door.tenant, door.store_id("own"), SPACE)

        def search(cache: VectorCache, query: Vectors) -> tuple[float, list[int]]:
            with db.tenant(door.tenant) as tx:
                began = time.perf_counter()
                opened = cache.open(tx, *place)
                assert opened is not None
                if opened.count != OWN:
                    raise RuntimeError(f"{opened.count} of {OWN} vectors are there")
                found = opened.similar(query, NEAR).numbers
                return (time.perf_counter() - began) * 1_000, found.tolist()

        cache = VectorCache(VECTOR_BYTES)
        search(cache, queries[0])
        found = [search(cache, query) for query in queries]
        cold = [search(VectorCache(VECTOR_BYTES), query)[0] for query in queries]
        unkept = [search(VectorCache(1), query)[0] for query in queries[:20]]
    named = (
        f"{OWN:,} records of 512 dimensions in {CLUSTERS} clusters, {OTHERS:,} of {STORES} other stores, best {NEAR}"
    )
    warm = report.time("vectors: core", named, [milliseconds for milliseconds, _ in found])
    report.time("vectors, nothing in memory: core", named, cold)
    exact = [_best(vectors["own"], query) for query in queries]
    report.bars += _bars(warm, _recall([numbers for _, numbers in found], exact))
    if controls:
        every = np.concatenate(list(vectors.values()))
        late = [[number for number in _best(every, query) if number < OWN] for query in queries]
        control = _bars(percentile(unkept, 0.5), _recall(late, exact))
        report.bars.append(missed("vectors", control, "with nothing kept and the store's filter after the selection"))


def _bars(milliseconds: float, recall: float) -> list[Bar]:
    what = "vector search in a store of 2,000 among 5,000 other records"
    return [
        Bar("vectors_ms", f"{what}, p50", milliseconds, "≤", 5, "ms"),
        Bar("vectors_recall", f"{what}, recall@10 against exact", recall, "≥", 1),
    ]


def _best(vectors: Vectors, query: Vectors) -> list[int]:
    cosines = vectors.astype(np.float64) @ query.astype(np.float64)
    return np.argsort(-cosines, kind="stable")[:NEAR].tolist()


def _recall(found: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    return sum(len(set(one) & set(other)) for one, other in zip(found, exact, strict=True)) / (NEAR * len(exact))
