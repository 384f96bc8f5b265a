"""Lexical and hybrid search of stores of 10,000 and 100,000 records, beside other programs on the same records.

*Core* is the ranking call in an open transaction: query text in, 200 ids and scores out, with its reads of index and tail.
*Warm*: every question was asked once before. *Cold*: an empty process cache for each search; Postgres has its own. What
Postgres does behind a load (vacuum, checkpoint) is over before anything is measured.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.search.fusion import DEPTH
from core.search.lexical.fallback import search_records
from core.search.lexical.service import LexicalIndex
from core.search.service import Engines, search
from core.search.vectors.cache import VectorCache
from tests.bench import rivals
from tests.bench.engines import SPACE, Prepared, database, embedded, give, mixed
from tests.bench.front import batches, front
from tests.bench.places import INDEX_BYTES, VECTOR_BYTES, Place
from tests.bench.report import Bar, Report, Sample, missed, percentile, say
from tests.bench.sentences import records
from tests.bench.stage import Stage

SIZES = {"10k": 10_000, "100k": 100_000}
LARGE = "100k"
K = 16
NEAR = 10
EMBEDDED = 500
HTTP_SAMPLES = 100
CONTROLS = 2
VERSIONS = {1: {"version": 1, "lexical": True}, 2: {"version": 2, "lexical": True}}
HYBRID = ("lexical", "vectors")


def run(
    stage: Stage, report: Report, parts: Sequence[str], questions: Sequence[str], *, small: bool, controls: bool
) -> None:
    with front(stage, stage.tenant("ranking")) as door, database(door) as db:
        texts: dict[str, list[str]] = {}
        rates: list[float] = []
        for store, size in SIZES.items():
            texts[store] = records(parts, size // (10 if small else 1))
            say(f"loading {store}")
            door.put(store, {"index": VERSIONS[1], "embedding": None})
            rates.append(len(texts[store]) / door.load(store, batches(texts[store]), len(texts[store])))
        report.samples.append(Sample("loading through memories:batch", "items/s", "version 1, by store", rates))
        door.settle()
        door.rest()
        places = {store: Place(door, db, store, door.store_id(store), questions) for store in SIZES}
        lexical(report, places, 1, controls)
        say("other programs")
        rivals.run(report, places)
        say("an index of version 2")
        for store in SIZES:
            door.put(store, {"index": VERSIONS[2], "embedding": None})
        door.settle()
        door.rest()
        lexical(report, places, 2, controls=False)
        hybrid(report, places[LARGE], texts[LARGE], controls)


# -- words ------------------------------------------------------------------------------------------------------------------


def lexical(report: Report, places: dict[str, Place], version: int, controls: bool) -> None:
    warm: dict[str, float] = {}
    cold: dict[str, float] = {}
    for store, place in places.items():
        say(f"words, version {version}, {store}")
        named = f"version {version}, {store} records"
        core, transaction = _warm(place, version)
        warm[store] = report.time("words, warm: core", named, core)
        report.time("words, warm: core and transaction", named, transaction)
        report.time(f"words, warm: service, {K} bodies", named, _service(place, version))
        report.time(f"words: POST …/searches, k {K}", named, _http(place, ("lexical",)))
        empty, terms = _cold(place, version)
        cold[store] = report.time("words, cold: core", named, empty)
        report.time("words, cold terms only: core", named, terms)
    report.bars += lexical_bars(version, warm, cold)
    if controls:
        say("control: without the index")
        slow = {store: percentile(_in_memory(place, version), 0.5) for store, place in places.items()}
        report.bars.append(missed("lexical", lexical_bars(version, slow, slow), "without the index"))


def lexical_bars(version: int, warm: dict[str, float], cold: dict[str, float]) -> list[Bar]:
    """p50 in milliseconds of each size."""
    tail = "" if version == 1 else f"_v{version}"
    what = f"exact lexical search, version {version}, core p50"
    return [
        Bar(f"lexical_10k_ms{tail}", f"{what}, 10,000, warm", warm["10k"], "≤", 1, "ms"),
        Bar(f"lexical_100k_ms{tail}", f"{what}, 100,000, warm", warm["100k"], "≤", 3, "ms"),
        Bar(f"lexical_cold_10k_ms{tail}", f"{what}, 10,000, cold", cold["10k"], "≤", 3, "ms"),
        Bar(f"lexical_cold_100k_ms{tail}", f"{what}, 100,000, cold", cold["100k"], "≤", 15, "ms"),
        Bar(f"growth_warm{tail}", "10 × the records, times the time, warm", warm["100k"] / warm["10k"], "≤", 5),
        Bar(f"growth_cold{tail}", "10 × the records, times the time, cold", cold["100k"] / cold["10k"], "≤", 8),
    ]


def _warm(place: Place, version: int) -> tuple[list[float], list[float]]:
    index = LexicalIndex(INDEX_BYTES)
    for question in place.questions:
        _asked(place, index, question, version)
    both = [_asked(place, index, question, version) for question in place.questions]
    return [core for core, _ in both], [whole for _, whole in both]


def _cold(place: Place, version: int) -> tuple[list[float], list[float]]:
    """With nothing in memory, and with all but the question's terms. The first is not counted: its statements are planned."""
    _asked(place, LexicalIndex(INDEX_BYTES), place.questions[0], version)
    empty, terms = [], []
    for question in place.questions:
        empty.append(_asked(place, LexicalIndex(INDEX_BYTES), question, version)[0])
        index = LexicalIndex(INDEX_BYTES)
        _asked(place, index, "zzyzx", version)
        terms.append(_asked(place, index, question, version)[0])
    return empty, terms


def _asked(place: Place, index: LexicalIndex, question: str, version: int) -> tuple[float, float]:
    """Milliseconds of the ranking, and with its transaction."""
    opened = time.perf_counter()
    with place.db.tenant(place.door.tenant) as tx:
        began = time.perf_counter()
        found = index.search(tx, place.door.tenant, place.store_id, question, version=version, limit=DEPTH)
        if found is None:
            raise RuntimeError(f"{place.store} has no index of version {version}")
        assert len(found.ids) == len(found.scores)
        core = time.perf_counter() - began
    return core * 1_000, (time.perf_counter() - opened) * 1_000


def _service(place: Place, version: int) -> list[float]:
    config = {"index": VERSIONS[version], "embedding": None}
    return _searches(place, Engines(LexicalIndex(INDEX_BYTES), VectorCache(VECTOR_BYTES), Prepared({})), config, None)


def _searches(place: Place, engines: Engines, config: dict[str, Any], routes: Sequence[str] | None) -> list[float]:
    """The whole service: its transactions, all routes, the bodies of K hits; once unmeasured, once measured."""
    times: list[float] = []
    for _ in range(2):
        times = []
        for question in place.questions:
            began = time.perf_counter()
            search(
                place.db, engines, place.door.tenant, place.store_id, question, k=K, config=config, revision=2**50,
                routes=routes, check=_nothing,
            )  # fmt: skip
            times.append((time.perf_counter() - began) * 1_000)
    return times


def _http(place: Place, routes: Sequence[str]) -> list[float]:
    more = {"k": K, "routes": list(routes)}
    messages = [place.door.search_message(place.store, question, **more) for question in place.questions[::2]]
    messages = messages[:HTTP_SAMPLES]
    for message in messages:
        place.door.timed(message)
    place.door.search(place.store, place.questions[0], **more)  # not degraded
    return [place.door.timed(message) for message in messages]


def _in_memory(place: Place, version: int) -> list[float]:
    """The control: the same ranking over the records themselves."""
    times: list[float] = []
    for question in place.questions[:CONTROLS]:
        began = time.perf_counter()
        search_records(
            place.db, place.door.tenant, place.store_id, question, version=version, revision=2**50, limit=DEPTH,
            check=_nothing,
        )  # fmt: skip
        times.append((time.perf_counter() - began) * 1_000)
    return times


# -- words and meaning ------------------------------------------------------------------------------------------------------


def hybrid(report: Report, place: Place, texts: Sequence[str], controls: bool) -> None:
    say("vectors")
    base = embedded(texts[:EMBEDDED])
    vectors = mixed(base, len(texts))
    give(place.door, place.db, place.store, vectors)
    index = {**VERSIONS[2], "entities": True, "temporal": True}
    place.door.put(place.store, {"index": index, "embedding": "builtin"})
    place.door.settle()
    place.door.rest()
    say("words and vectors")
    asked = embedded(place.questions)
    embedders = Prepared(dict(zip(place.questions, asked, strict=True)))
    engines = Engines(LexicalIndex(INDEX_BYTES), VectorCache(VECTOR_BYTES), embedders)
    config = {"index": index, "embedding": "builtin"}
    named = f"version 2, {place.store} records, k {K}"
    times = _searches(place, engines, config, HYBRID)
    value = report.time("words and vectors: service without the embedding call", named, times)
    report.bars.append(_hybrid_bar(value))
    report.time(
        "all routes of a new store: service without the embedding call", named,
        _searches(place, engines, config, None),
    )  # fmt: skip
    report.time("words and vectors: POST …/searches", named, _http(place, HYBRID))
    with place.db.tenant(place.door.tenant) as tx:
        opened = engines.vectors.open(tx, place.door.tenant, place.store_id, SPACE)
    assert opened is not None
    if opened.count != len(texts):
        raise RuntimeError(f"{opened.count} of {len(texts)} vectors are there")
    shares: list[float] = []
    for vector in asked:
        best = set(np.argsort(-(vectors @ vector), kind="stable")[:NEAR].tolist())
        shares.append(len(best & set(opened.similar(vector, NEAR).numbers.tolist())) / NEAR)
    report.samples.append(Sample("vectors, recall@10 against exact, mean", "share", named, [sum(shares) / len(shares)]))
    if controls:
        few = Place(place.door, place.db, place.store, place.store_id, place.questions[:CONTROLS])
        slow = _searches(few, Engines(engines.lexical, VectorCache(1), embedders), config, HYBRID)
        control = [_hybrid_bar(percentile(slow, 0.5))]
        report.bars.append(missed("hybrid", control, "with vectors read for each search"))


def _hybrid_bar(value: float) -> Bar:
    return Bar("hybrid_100k_ms", "words and vectors without the embedding call, 100,000, p50", value, "≤", 10, "ms")


def _nothing() -> None:
    """Nothing stops a measured search."""
