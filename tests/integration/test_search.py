"""Searches by all routes: what the frozen version must give to the last bit, what version 2 makes of it, and for whom."""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from core.errors import Erased, InvalidRequest
from core.models import gateway
from core.models.attempts import Policy
from core.models.embedders import Embedders
from core.models.embedding import Profile
from core.reading.service import read
from core.records.reading import get_record
from core.search import ranking
from core.search.answering import answer
from core.search.fusion import rrf
from core.search.lexical.building import maintain
from core.search.lexical.model import NO_SCOPE, Scope
from core.search.lexical.service import LexicalIndex
from core.search.service import Engines, SearchResult, search
from core.search.vectors.cache import VectorCache
from core.search.vectors.filling import fill
from core.tenants.config import Index, StoreConfig
from core.tenants.stores import get_store, put_store, store_id_of
from tests.conftest import TestDatabase
from tests.fakes.embedding_server import EmbeddingServer, embedding_server, vector
from tests.fakes.jobs import Jobs
from tests.fakes.memory import Memory
from tests.fakes.models import embedders_alone
from tests.fakes.ranking import literal
from tests.rows import execute

TEXTS = (
    "The release is on Thursday, and Ana signs it off.",
    "Ana paints the old boat at the sea.",
    "The boat was sold in May.",
    "Nobody knows when the release notes are due; ask the release desk.",
    "GitHub was down on 2026-05-03.",
)


class World:
    """A tenant's journal, and the engines of one process. The profile `fake` is an embedding server of the test's."""

    def __init__(self, database: TestDatabase, tenant: UUID, embedders: Embedders) -> None:
        self.database = database
        self.tenant = tenant
        self.engines = Engines(LexicalIndex(2**28), VectorCache(2**28), embedders)
        with database.app.tenant(tenant) as tx:
            self.store = store_id_of(tx, tenant, "journal")
        self.memory = Memory(database.app, tenant, self.store)

    def configure(self, *, embedding: str | None = None, **index: Any) -> None:
        """As the store's configuration, and what the job does that this asks for."""
        with self.database.app.tenant(self.tenant) as tx:
            put_store(tx, self.tenant, "journal", StoreConfig(index=Index(**index), embedding=embedding))
        maintain(self.database.app, self.tenant, self.store, lambda: None)

    def embed(self) -> None:
        """What the `embed` job does."""
        jobs = Jobs(self.database, self.tenant)
        for job, row in jobs.rows().items():
            if row["kind"] == "embed" and row["state"] == "queued":
                claim = jobs.claim(job)
                assert claim is not None
                fill(self.database.app, claim, self.engines.embedders, lambda: None, 30)

    def config(self) -> dict[str, Any]:
        with self.database.app.tenant(self.tenant) as tx:
            return dict(get_store(tx, self.tenant, "journal").config)

    def search(
        self,
        query: str,
        *,
        k: int = 20,
        revision: int = 2**50,
        scope: Scope = NO_SCOPE,
        routes: Sequence[str] | None = None,
    ) -> SearchResult:
        return search(
            self.database.app, self.engines, self.tenant, self.store, query, k=k, config=self.config(),
            revision=revision, scope=scope, routes=routes, check=lambda: None,
        )  # fmt: skip

    def texts(self, query: str, **more: Any) -> list[str]:
        return [json.loads(hit.row["canonical"])["content"] for hit in self.search(query, **more).hits]

    def answer(self, **body: Any) -> dict[str, Any]:
        return answer(self.database.app, self.engines, self.tenant, self.store, body, lambda: None)

    def read(self, **body: Any) -> dict[str, Any]:
        return read(self.database.app, self.engines, self.tenant, self.store, body, lambda: None)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def world(database: TestDatabase, tenant: UUID, server: EmbeddingServer) -> Iterator[World]:
    with embedders_alone({"fake": Profile(kind="openai", url=server.url, model="fake")}) as embedders:
        yield World(database, tenant, embedders)


def written(world: World, texts: Sequence[str] = TEXTS) -> list[str]:
    """The ids of the blocks, one a text."""
    results = world.memory.batch([{"text": text} for text in texts])["items"]
    return [block["id"] for result in results for block in result["blocks"]]


def found(result: SearchResult) -> list[tuple[str, float]]:
    return [(hit.row["id"], hit.score) for hit in result.hits]


def test_words_alone_are_ranked_as_the_literal_ranking_does(world: World) -> None:
    world.configure(version=1, lexical=True)
    written(world)
    for query in ("When is the release?", "the boat", "Ana", "unheard of words", "github 2026"):
        expected = literal(world.memory.db, world.tenant, world.store, query)
        assert found(world.search(query)) == expected, query
        assert found(world.search(query, k=1)) == expected[:1]


def test_the_frozen_version_fuses_words_and_meaning_by_ranks(world: World) -> None:
    world.configure(version=1, lexical=True, embedding="fake")
    ids = written(world)
    world.embed()
    query = TEXTS[1]
    words = [own_id for own_id, _ in literal(world.memory.db, world.tenant, world.store, query)]
    rows = np.array([vector(text, 8) for text in TEXTS])
    cosines = rows @ rows[1] / np.linalg.norm(rows, axis=1)
    meaning = [ids[n] for n in np.argsort(-cosines)]
    result = world.search(query)
    assert found(result) == rrf([words, meaning])
    assert result.hits[0].row["id"] == ids[1]
    assert result.degraded == []
    assert result.routes["vectors"].score(1) == pytest.approx(1.0, abs=1e-6)


def test_version_2_ranks_by_standard_scores(world: World) -> None:
    world.configure(version=2, lexical=True, embedding="fake")
    ids = written(world)
    world.embed()
    result = world.search("a boat on the sea")
    cosines = result.routes["vectors"].scores
    assert cosines is not None
    assert len(cosines) == len(TEXTS)
    expected = ranking.rank(
        result.lexical.every, cosines, ranking.Places(np.zeros(5, np.int32), np.zeros(5, np.int8)), 200
    )
    assert found(result) == [(ids[n], score) for n, score in zip(expected.numbers, expected.scores, strict=True)]
    assert len(result.hits) == len(TEXTS)
    words = dict(literal(world.memory.db, world.tenant, world.store, "a boat on the sea", version=2))
    assert result.lexical.every.tolist() == [words.get(own_id, 0.0) for own_id in ids]


def test_version_2_knows_the_pieces_of_a_long_message(world: World) -> None:
    world.configure(version=2, lexical=True)
    long = " ".join(f"the tide of day {n} was high at the pier" for n in range(60))
    messages = [{"role": "user", "content": text} for text in ("no such thing " * 8, long, "short")]
    world.memory.commit(("conversation", {"messages": messages, "sessionId": "s"}))
    result = world.search("tide", k=50)
    pieces = result.lexical.pieces.tolist()
    assert pieces.count(1) == 1
    assert pieces.count(2) >= 2
    execute(world.database.admin, "delete from lexical_indexes")
    in_memory = world.search("tide", k=50)
    assert in_memory.degraded == ["lexical-index"]
    assert in_memory.lexical.pieces.tolist() == pieces
    assert found(in_memory) == found(result)


def test_a_store_is_searched_by_the_version_it_is_switched_to(world: World) -> None:
    world.configure(version=1, lexical=True)
    written(world)
    assert found(world.search("boats")) == []
    world.configure(version=2, lexical=True)
    assert sorted(world.texts("boats")) == sorted(TEXTS[1:3])
    assert world.search("boats").degraded == []


@pytest.mark.parametrize("version", [1, 2])
def test_without_its_embedder_a_search_goes_by_words_and_says_so(
    world: World, server: EmbeddingServer, version: int
) -> None:
    world.configure(version=version, lexical=True)
    written(world)
    words = found(world.search("release"))
    world.configure(version=version, lexical=True, embedding="fake")
    world.embed()
    server.faults[:] = ["500"] * 9
    result = world.search("release")
    assert result.degraded == ["embedding"]
    assert found(result) == words
    assert world.read(question="release")["stats"]["degraded"] == ["embedding"]
    server.faults.clear()
    assert world.search("release").degraded == []


def test_an_embedder_that_hangs_does_not_hold_up_a_search(
    world: World, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "QUERY", Policy(attempts=1, timeout=0.2, whole=5))
    world.configure(version=2, lexical=True, embedding="fake")
    written(world)
    world.embed()
    server.delay = 1.0
    result = world.search("release")
    assert result.degraded == ["embedding"]
    assert result.embedding_ms < 1_000
    assert len(result.hits) == 2


def test_before_there_are_vectors_a_search_goes_by_words(world: World) -> None:
    world.configure(version=2, lexical=True, embedding="fake")
    written(world)
    result = world.search("release")
    assert "vectors" not in result.routes
    assert len(result.hits) == 2


def test_other_routes_find_what_words_do_not(world: World) -> None:
    world.configure(version=1, lexical=True, entities=True, temporal=True, recency=True)
    ids = written(world, [*TEXTS, "It rained."])
    world.memory.write({"text": "Nothing happened.", "at": "2020-02-03T10:00:00Z", "id": "old"})
    result = world.search("What was in February 2020?")
    assert result.routes["temporal"].numbers[0] == len(ids)
    assert "old-b0000" in [hit.row["id"] for hit in result.hits]
    assert result.routes["entities"].found == 0
    assert result.index_routes == {"lexical": 1, "temporal": 1, "recency": 1}
    assert world.search("Is GitHub up?").routes["entities"].numbers.tolist() == [4]
    view = world.read(question="Is GitHub up?")
    assert view["stats"]["indexRoutes"] == {"lexical": 1, "entities": 1, "recency": 1}


@pytest.mark.parametrize("version", [1, 2])
def test_traversal_reaches_what_shares_an_entity(world: World, version: int) -> None:
    world.configure(version=version, lexical=True, traversal=True)
    ids = written(world, ["Berta likes GitHub", "GitHub and Redis hum", "Redis sleeps", "a stone", "a tree"])
    result = world.search("Berta")
    assert result.routes["traversal"].numbers.tolist() == [0, 1, 2]
    assert [hit.row["id"] for hit in result.hits] == ids[:3]
    assert result.index_routes == {"lexical": 1, "traversal": 1, "traversal+": 1}
    alone = world.search("stone")
    assert alone.index_routes == {"lexical": 1, "traversal": 1}


@pytest.mark.parametrize("version", [1, 2])
def test_a_search_sees_the_store_as_it_was_and_what_the_scope_allows(world: World, version: int) -> None:
    world.configure(version=version, lexical=True, entities=True, temporal=True, recency=True, embedding="fake")
    written(world, ["GitHub tide one"])
    world.memory.write(
        {"text": "GitHub tide two", "scope": "project", "workspaceId": "w"},
        {"text": "GitHub tide three", "scope": "session", "sessionId": "s"},
        {"text": "GitHub tide four"},
    )
    world.embed()
    query = "GitHub tide"
    assert sorted(world.texts(query)) == ["GitHub tide four", "GitHub tide one"]
    assert sorted(world.texts(query, scope=Scope("w"))) == ["GitHub tide four", "GitHub tide one", "GitHub tide two"]
    assert len(world.texts(query, scope=Scope("w", "s"))) == 4
    assert world.texts(query, revision=1) == ["GitHub tide one"]
    assert sorted(world.texts(query, revision=3, scope=Scope(None, "s"))) == ["GitHub tide one", "GitHub tide three"]
    assert world.texts(query, revision=0) == []
    assert len(world.answer(query=query, scope={"workspaceId": "w"}, revision=2)["items"]) == 2
    with pytest.raises(InvalidRequest, match="revision"):
        world.answer(query=query, revision=9)


def test_what_was_erased_is_not_found(world: World) -> None:
    world.configure(version=2, lexical=True, entities=True, embedding="fake")
    ids = written(world)
    world.embed()
    assert len(world.search("release").hits) == 5
    world.memory.erase(recordId=ids[0])
    assert ids[0] not in [hit.row["id"] for hit in world.search("release").hits]
    assert len(world.search("release").hits) == 4


def test_o4_every_id_that_is_given_out_resolves_until_it_is_erased(world: World) -> None:
    world.configure(version=2, lexical=True, entities=True, temporal=True)
    written(world)
    given = {item["id"]: item["sha256"] for item in world.answer(query="Ana, the boat and the release")["items"]}
    assert len(given) >= 4
    maintain(world.database.app, world.tenant, world.store, lambda: None, rebuild=True)
    world.configure(version=1, lexical=True)
    with world.database.app.tenant(world.tenant) as tx:
        assert {own_id: get_record(tx, world.tenant, world.store, own_id).sha256 for own_id in given} == given
    gone = next(iter(given))
    world.memory.erase(recordId=gone)
    with world.database.app.tenant(world.tenant) as tx, pytest.raises(Erased):
        get_record(tx, world.tenant, world.store, gone)


def test_an_answer_shows_what_each_route_said(world: World) -> None:
    world.configure(version=1, lexical=True, entities=True)
    ids = written(world)
    result = world.answer(query="date: 3 May 2026\nthe release of GitHub", k=2, explain=True)
    assert result["revision"] == 5
    assert [item["id"] for item in result["items"]] == [entry for entry, _ in rrf([
        [own_id for own_id, _ in literal(world.memory.db, world.tenant, world.store, "the release of GitHub")], [ids[4]]
    ])][:2]  # fmt: skip
    item = next(item for item in result["items"] if item["id"] == ids[4])
    assert item["text"] == TEXTS[4]
    assert item["document"] == ids[4].removesuffix("-b0000")
    assert item["position"] == 0
    assert item["routes"]["entities"] == {"rank": 0}
    assert set(item["routes"]["lexical"]) == {"rank", "score"}
    explained = result["explain"]
    assert explained["query"] == "the release of GitHub"
    assert explained["fusion"] == "reciprocal ranks"
    assert {"term": "release", "records": 2} in explained["terms"]
    lexical = explained["routes"]["lexical"]
    assert lexical["found"] == 5
    for candidate in lexical["candidates"]:
        assert candidate["in"] == (candidate["id"] in [item["id"] for item in result["items"]])
        assert candidate["why"]


def test_routes_may_be_named(world: World) -> None:
    world.configure(version=2, lexical=True)
    ids = written(world)
    only = world.answer(query="What about GitHub and the release?", routes=["entities"])
    assert [item["id"] for item in only["items"]] == [ids[4]]
    assert only["stats"]["indexRoutes"] == {"entities": 1}
    with pytest.raises(InvalidRequest, match="vectors"):
        world.answer(query="x", routes=["vectors"])
