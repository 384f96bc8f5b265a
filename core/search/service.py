"""One search of a store, by all its routes: what reads, `POST …/searches`, the command line and the benchmarks go through.

Index version 1 ranks as the reference does: BM25 alone, or reciprocal rank fusion of BM25 with every other route
(memory-agent.md §3). Version 2 adds up standard scores (core/search/ranking.py). A route that cannot answer is left out and
reported.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from core.budget.model import Spender
from core.clock import monotonic, now
from core.errors import InvalidRequest
from core.models.catalogue import Named
from core.models.embedders import Embedders
from core.models.embedding import EmbeddingRefused, EmbeddingUnavailable, Vectors
from core.models.model import Call
from core.search import fusion, ranking, temporal
from core.search.bm25 import QUERY_UNITS
from core.search.finding import Finder
from core.search.fusion import DEPTH
from core.search.lexical import fallback
from core.search.lexical.model import NO_SCOPE, LexicalResult, Scope
from core.search.lexical.service import LexicalIndex
from core.search.vectors.cache import VectorCache
from core.search.vectors.filling import space_of
from core.search.vectors.matrix import top
from core.store.database import Database, Row, Tx, as_text
from core.tenants.config import ROUTES as FLAGGED
from core.tenants.config import index_version
from core.text import cut_units

LEXICAL, VECTORS = "lexical", "vectors"
OTHERS = ("entities", "temporal", "recency", "traversal")
"""The routes that find records by something else than their words or meaning."""
ROUTES = (LEXICAL, VECTORS, *OTHERS)

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Engines:
    """What searches of one process share."""

    lexical: LexicalIndex
    vectors: VectorCache
    embedders: Embedders


@dataclass(frozen=True, slots=True)
class Route:
    """What one route found: at most 200 record numbers, best first, and how many it found in all.

    `scores[n]` is its own score of record n, perhaps of fewer records than there are; None: it has an order only."""

    numbers: Numbers
    found: int
    scores: NDArray[Any] | None = None

    def rank(self, number: int) -> int | None:
        """From 0."""
        places = np.flatnonzero(self.numbers == number)
        return int(places[0]) if len(places) else None

    def score(self, number: int) -> float | None:
        if self.scores is None or number >= len(self.scores):
            return None
        score = float(self.scores[number])
        return None if np.isnan(score) else score


@dataclass(frozen=True, slots=True)
class Hit:
    """A record of the result. `row`: id, document_id, sha256, canonical, position and ordinal."""

    number: int
    score: float
    row: Row


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`numbers` and `scores`: the whole ranking, at most 200; `hits`: the first k of it with their records.

    `degraded` is in the order of contract.md; `index_routes` counts, of the index's routes, those that found something."""

    revision: int
    version: int
    hits: list[Hit]
    numbers: Numbers
    scores: NDArray[np.float64]
    routes: Mapping[str, Route]
    lexical: LexicalResult
    degraded: list[str]
    index_routes: dict[str, int]
    embedding_ms: int


@dataclass
class _Asked:
    """A search under way."""

    lexical: LexicalResult
    routes: dict[str, Route] = field(default_factory=dict[str, Route])

    def add(self, name: str, numbers: Sequence[int]) -> None:
        self.routes[name] = Route(np.array(numbers, np.int64), len(numbers))

    def look(self, finder: Finder, wanted: Collection[str], text: str, named: Sequence[temporal.Span]) -> None:
        """By the routes that start from the question alone."""
        if "entities" in wanted:
            self.add("entities", finder.by_entities(cut_units(text, QUERY_UNITS)))
        if "temporal" in wanted:
            self.add("temporal", finder.by_time(named) if named else [])
        if "recency" in wanted:
            self.add("recency", finder.newest())

    def ranked(self, version: int, finder: Finder) -> tuple[Numbers, NDArray[np.float64]]:
        return self._by_standard_scores() if version > 1 else self._by_ranks(finder)

    def _by_standard_scores(self) -> tuple[Numbers, NDArray[np.float64]]:
        lexical, vectors = self.lexical, self.routes.get(VECTORS)
        found = ranking.rank(
            lexical.every, None if vectors is None else vectors.scores,
            ranking.Places(lexical.ordinals, lexical.pieces), DEPTH, visible=lexical.visible,
            others=[self.routes[name].numbers for name in OTHERS if name in self.routes],
        )  # fmt: skip
        return found.numbers, found.scores

    def _by_ranks(self, finder: Finder) -> tuple[Numbers, NDArray[np.float64]]:
        if self.routes.keys() == {LEXICAL}:
            return self.lexical.numbers, self.lexical.scores
        ids = finder.ids(route.numbers for route in self.routes.values())
        rankings = [
            [ids[number] for number in route.numbers.tolist() if number in ids] for route in self.routes.values()
        ]
        numbers = {own_id: number for number, own_id in ids.items()}
        fused = fusion.rrf(rankings)[:DEPTH]
        return np.array([numbers[own_id] for own_id, _ in fused], np.int64), np.array([score for _, score in fused])


def search(
    db: Database,
    engines: Engines,
    tenant_id: UUID,
    store_id: UUID,
    query: str,
    *,
    k: int,
    config: Mapping[str, Any],
    revision: int,
    scope: Scope = NO_SCOPE,
    routes: Collection[str] | None = None,
    recent: Sequence[str] = (),
    check: Callable[[], None],
) -> SearchResult:
    """The `k` (at most 200) best records that the caller may see in the store as it was at `revision`.

    `config`: the store's effective configuration, which says by which routes to search; `routes`: by these instead. `recent`:
    the conversation's messages, oldest first, from which the date of `yesterday` is taken. `check` is called in long work and
    raises to stop. Raises InvalidRequest (`routes`)."""
    wanted = enabled(config) if routes is None else frozenset(routes)
    embedding: Named | None = config.get("embedding")
    if VECTORS in wanted and embedding is None:
        raise InvalidRequest.field("routes", "vectors needs an embedding, and the store's configuration has none")
    version = index_version(config)
    text = asked(query)
    degraded: list[str] = []
    began = monotonic()
    meaning = None
    if embedding is not None and VECTORS in wanted:
        call = Call(Spender(tenant_id, store_id, None, "embed", "read"))
        meaning = _embedded(engines, embedding, text, call, degraded)
    embedding_ms = round((monotonic() - began) * 1000)
    check()
    flags = cast("Mapping[str, Any]", config.get("index") or {})
    linked = False
    with fallback.searched(
        db, engines.lexical, tenant_id, store_id, text if LEXICAL in wanted else "", version=version, revision=revision,
        scope=scope, limit=DEPTH, named=False, check=check,
    ) as (tx, lexical):  # fmt: skip
        if lexical.in_memory and LEXICAL in wanted and flags.get(LEXICAL):
            degraded.insert(0, "lexical-index")
        found = _Asked(lexical)
        if LEXICAL in wanted:
            found.routes[LEXICAL] = Route(lexical.numbers, int(np.count_nonzero(lexical.every > 0)), lexical.every)
        if meaning is not None:
            route = _by_meaning(tx, engines, tenant_id, store_id, meaning, lexical)
            if route is not None:
                found.routes[VECTORS] = route
        finder = Finder(tx, tenant_id, store_id, len(lexical.every), scope, lexical.all_seen)
        found.look(finder, wanted, text, times(query, recent))
        numbers, scores = found.ranked(version, finder)
        if "traversal" in wanted:
            walk = finder.traverse(numbers.tolist())
            linked = walk.linked
            found.add("traversal", walk.numbers)
            numbers, scores = found.ranked(version, finder)
        best = numbers[:k].tolist()
        rows = tx.rows("records_by_number", tenant=tenant_id, store=store_id, numbers=as_text(best)) if best else []
    by_number = {row["number"]: row for row in rows}
    hits = [
        Hit(number, score, by_number[number])
        for number, score in zip(best, scores[:k].tolist(), strict=True)
        if number in by_number  # else erased meanwhile
    ]
    counted = [name for name in (LEXICAL, *OTHERS) if flags.get(name) or routes is not None]
    index_routes = {name: 1 for name in counted if name in found.routes and found.routes[name].found}
    if linked:
        index_routes["traversal+"] = 1
    return SearchResult(
        revision, version, hits, numbers, scores, found.routes, lexical, degraded, index_routes, embedding_ms
    )


def enabled(config: Mapping[str, Any]) -> frozenset[str]:
    """The routes of a store's configuration. Words are always searched, meaning where there is an embedding."""
    flags = cast("Mapping[str, Any]", config.get("index") or {})
    chosen = {name for name in FLAGGED if flags.get(name)}
    return frozenset({LEXICAL, *chosen} | ({VECTORS} if config.get("embedding") is not None else set()))


def asked(query: str) -> str:
    """The query without a first line that states the date (memory-agent.md §1.4)."""
    return temporal.split_dateline(query)[0].strip() or query


def times(query: str, recent: Sequence[str] = ()) -> list[temporal.Span]:
    """The spans of time that the query names."""
    return temporal.spans(query, temporal.reference(query, recent, now()))


def at_revision(wanted: int | None, newest: int) -> int:
    """Raises InvalidRequest for a revision that the store has not reached."""
    if wanted is None:
        return newest
    if wanted > newest:
        raise InvalidRequest.field("revision", f"the store is at revision {newest}: ask for at most that")
    return wanted


def _embedded(
    engines: Engines, named: Named, text: str, call: Call, degraded: list[str]
) -> tuple[UUID, Vectors] | None:
    """The query's vector, and the space it lies in."""
    try:
        embedder = engines.embedders.named(call.spender.tenant_id, named)
        return space_of(embedder), embedder.query(cut_units(text, QUERY_UNITS), call)
    except (EmbeddingUnavailable, EmbeddingRefused):
        degraded.append("embedding")
        return None


def _by_meaning(
    tx: Tx, engines: Engines, tenant_id: UUID, store_id: UUID, meaning: tuple[UUID, Vectors], lexical: LexicalResult
) -> Route | None:
    """None: the store has no vectors yet."""
    space, vector = meaning
    vectors = engines.vectors.open(tx, tenant_id, store_id, space)
    if vectors is None:
        return None
    visible = np.ones(len(lexical.every), np.bool_) if lexical.visible is None else lexical.visible
    cosines = vectors.every(vector, visible)[: len(visible)]
    shown = np.where(visible[: len(cosines)] & ~np.isnan(cosines), cosines, -np.inf)
    best = top(np.arange(len(shown)), shown, DEPTH).numbers
    return Route(best, int(np.count_nonzero(shown > -np.inf)), cosines)
