"""Vectors from write to search: filled by jobs, paired with the right text, gone with it, exact among other stores."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from core.clock import monotonic, now
from core.errors import LeaseLost
from core.faults import Faults
from core.ids import uuid7
from core.jobs.backlog import deferred_reasons
from core.jobs.kinds import kinds
from core.jobs.model import Claim, Deferred, Done
from core.models import builtin
from core.models.embedders import Embedders
from core.models.embedding import BadReply, EmbeddingRefused, Profile
from core.records.service import commit_writes
from core.search.vectors import cache as caching
from core.search.vectors import filling, storing
from core.search.vectors.cache import VectorCache, Vectors
from core.settings import Settings
from core.tenants.stores import store_id_of
from tests.conftest import TestDatabase
from tests.fakes.embedding_server import EmbeddingServer, embedding_server, vector
from tests.fakes.fleet import fleet, until
from tests.fakes.jobs import WRITE, Jobs
from tests.fakes.models import TENANT, call, embedders_alone
from tests.rows import execute
from workers.actors.embedding import EmbedStore
from workers.actors.work import Work
from workers.keeper import Hold

EMBED = "embed.bulk"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with embedding_server() as running:
        yield running


@pytest.fixture
def embedders(server: EmbeddingServer) -> Iterator[Embedders]:
    """The profile `fake` is granted to everyone."""
    profile = Profile(kind="openai", url=server.url, model="fake", document_prefix="d: ", query_prefix="q: ")
    with embedders_alone({"fake": profile}) as made:
        yield made


class World:
    """One tenant's journal with the profile `fake`; a test plays the worker."""

    def __init__(self, database: TestDatabase, tenant: UUID, embedders: Embedders) -> None:
        self.database = database
        self.tenant = tenant
        self.embedders = embedders
        self.jobs = Jobs(database, tenant)
        self.cache = VectorCache()
        self.space = filling.space_of(embedders.named(TENANT, "fake"))
        self.store = self.made("journal")

    def made(self, name: str) -> UUID:
        if name != "journal":
            execute(
                self.database.admin,
                "insert into stores (tenant_id, store_id, name, config, policy_hash) values (%s, %s, %s, '{}', '')",
                self.tenant, uuid7(), name,
            )  # fmt: skip
        execute(
            self.database.admin,
            "update stores set config = config || '{\"embedding\": \"fake\"}' where tenant_id = %s and name = %s",
            self.tenant, name,
        )  # fmt: skip
        with self.database.app.tenant(self.tenant) as tx:
            return store_id_of(tx, self.tenant, name)

    def write(self, *texts: str, store: str = "journal", queue: str = WRITE) -> list[str]:
        """The ids of the blocks."""
        accepted = [self.jobs.accept("write", queue, {"text": text}, store=store) for text in texts]
        claims = self.jobs.claim_writes(accepted[0])
        commit_writes(self.database.app, claims, Faults())
        rows = [json.loads(self.jobs.row(job)["result"]) for job in accepted]
        return [block["id"] for row in rows for block in row["blocks"]]

    def erase(self, **body: Any) -> None:
        job = self.jobs.accept("erase", "write.bulk", body, store="journal")
        commit_writes(self.database.app, self.jobs.claim_writes(job), Faults())
        assert self.jobs.row(job)["state"] == "succeeded"

    def waiting(self, queue: str = EMBED) -> list[UUID]:
        return [
            job for job, row in self.jobs.rows().items() if row["queue"] == queue and row["state"] in ("queued", "deferred")
        ]  # fmt: skip

    def work(self, claim: Claim, slice_seconds: float = 30.0) -> Any:
        settings = Settings()
        hold = Hold([claim], thread_id=0, deadline=monotonic() + 60, trusted_until=monotonic() + 60)
        work = Work(claim, hold, self.database.app, settings, kinds(settings), Faults())
        return EmbedStore(self.embedders, slice_seconds)(work)

    def run(self, queue: str = EMBED) -> dict[str, Any]:
        """Works the one waiting job to its end; its result."""
        (job,) = self.waiting(queue)
        claim = self.jobs.claim(job)
        assert claim is not None
        done = self.work(claim)
        assert isinstance(done, Done)
        assert self.jobs.finish(claim, result=json.dumps(done.result))
        assert done.result is not None
        return done.result

    def vectors(self, store: UUID | None = None, cache: VectorCache | None = None) -> Vectors:
        with self.database.app.tenant(self.tenant) as tx:
            found = (cache or self.cache).open(tx, self.tenant, store or self.store, self.space)
        assert found is not None
        return found

    def count(self) -> int:
        return execute(self.database.admin, "select count(*) from vectors")[0][0]

    def numbers(self) -> dict[str, int]:
        rows = execute(
            self.database.admin,
            "select canonical::json ->> 'content', number from records where store_id = %s",
            self.store,
        )
        return dict(rows)


@pytest.fixture
def world(database: TestDatabase, tenant: UUID, embedders: Embedders) -> World:
    return World(database, tenant, embedders)


def expected(text: str) -> np.ndarray[Any, Any]:
    row = np.array(vector(f"d: {text}", 8))
    return row / np.linalg.norm(row)


def test_every_record_gets_the_vector_of_its_own_text(world: World, server: EmbeddingServer) -> None:
    texts = [f"text {n}" for n in range(300)]
    world.write(*texts)
    assert world.run() == {"embedded": 300, "reused": 0}
    assert max(len(body["input"]) for _, body in server.asked) == 64
    assert len(server.asked) <= -(-300 // 64) + 1  # a page of 256 and the rest
    found = world.vectors()
    assert found.count == 300
    for text, number in world.numbers().items():
        similar = found.similar(expected(text).astype(np.float32), 1)
        assert similar.numbers.tolist() == [number]
        assert similar.cosines[0] == pytest.approx(1, abs=1e-6)


def test_one_job_waits_however_many_writes(world: World) -> None:
    world.write("a")
    world.write("b", "c")
    (job,) = world.waiting()
    assert world.run() == {"embedded": 3, "reused": 0}
    assert world.waiting() == []
    world.write("d")
    assert world.waiting() != [job]
    assert world.run() == {"embedded": 1, "reused": 0}


def test_a_write_during_a_run_is_seen_by_a_new_job(world: World) -> None:
    world.write("a")
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    world.write("b")
    (later,) = world.waiting()
    assert later != job
    other = world.jobs.claim(later)
    assert other is not None
    outcome = world.work(other)
    assert isinstance(outcome, Deferred)  # one job a store at a time: the one that began first
    assert world.work(claim) == Done({"embedded": 2, "reused": 0})


def test_a_waiting_job_cannot_be_claimed_before_the_write_is_committed(world: World, database: TestDatabase) -> None:
    world.write("a")
    (job,) = world.waiting()
    with database.app.tenant(world.tenant) as tx:
        assert storing.request_job(tx, world.tenant, world.store, EMBED) is None
        with pytest.raises(Exception, match="lock timeout"):
            execute(
                database.admin + "?options=-c%20lock_timeout%3D100ms",
                "update jobs set state = 'running' where job_id = %s", job,
            )  # fmt: skip


def test_one_job_waits_whichever_lane_the_writes_had(world: World) -> None:
    world.write("a", queue="write.bulk")
    world.write("b")
    assert len(world.waiting()) == 1
    assert world.waiting("embed.interactive") == []
    assert world.run() == {"embedded": 2, "reused": 0}


def test_a_store_without_an_embedding_asks_for_nothing(world: World, database: TestDatabase) -> None:
    execute(database.admin, "update stores set config = config || '{\"embedding\": null}'")
    world.write("a")
    assert world.waiting() == []


def test_equal_texts_are_asked_for_once(world: World, server: EmbeddingServer) -> None:
    world.write("same", "same", "other")
    assert world.run() == {"embedded": 3, "reused": 0}
    assert sorted(server.texts()) == ["d: other", "d: same"]
    second = world.made("second")
    world.write("same", "new", store="second")
    assert world.run() == {"embedded": 1, "reused": 1}
    assert server.texts()[2:] == ["d: new"]
    assert world.vectors(second).count == 2
    assert world.count() == 3


@pytest.mark.parametrize(("fault", "seconds"), [("429", 7), ("500", 30), ("cut", 30)])
def test_h3_an_embedder_that_is_away_defers_the_job(
    world: World, server: EmbeddingServer, fault: str, seconds: int
) -> None:
    """Nothing is lost, nothing is marked done, no attempt is used up."""
    texts = [f"text {n}" for n in range(300)]
    world.write(*texts)
    server.faults = ["", "", "", "", fault]  # after the first page is stored
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    outcome = world.work(claim)
    assert isinstance(outcome, Deferred)
    assert outcome.reason == "embed"
    assert 0 < seconds - (outcome.run_at - now()).total_seconds() < 5
    assert world.vectors().count == 256
    assert world.jobs.defer(claim, 0, outcome.reason)
    with world.database.relay.system() as tx:
        assert [(waits.reason, waits.jobs) for waits in deferred_reasons(tx)] == [
            ("embed", 1)
        ]  # what the exporter shows
    assert world.jobs.row(job)["attempt"] == 0
    world.jobs.run_out(job)
    world.jobs.sweep()
    assert world.run() == {"embedded": 44, "reused": 0}
    assert world.vectors().count == 300


def test_h4_what_was_embedded_is_not_asked_for_again(world: World, server: EmbeddingServer) -> None:
    """Twenty times the embedder refuses the rest: each text is answered once, and so would be paid once."""
    texts = [f"text {n}" for n in range(300)]
    world.write(*texts)
    server.faults = ["", "", "", "", *["429"] * 20]  # after the first page is stored
    (job,) = world.waiting()
    for _ in range(20):
        claim = world.jobs.claim(job)
        assert claim is not None
        assert isinstance(world.work(claim), Deferred)
        assert world.jobs.defer(claim, 0)
        world.jobs.run_out(job)
        world.jobs.sweep()
        assert world.vectors().count == 256
    refused = server.asked[4:]
    assert [len(body["input"]) for _, body in refused] == [44] * 20
    assert world.run() == {"embedded": 44, "reused": 0}
    assert world.jobs.row(job)["attempt"] == 1
    answered = [text for _, body in (*server.asked[:4], *server.asked[24:]) for text in body["input"]]
    assert sorted(answered) == sorted(f"d: {text}" for text in texts)


@pytest.mark.parametrize("fault", ["fewer", "doubled", "nan", "garbage"])
def test_m14_nothing_of_a_bad_reply_is_stored(world: World, server: EmbeddingServer, fault: str) -> None:
    world.write(*[f"text {n}" for n in range(100)])
    server.faults = ["", fault]
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    with pytest.raises(BadReply) as raised:
        world.work(claim)
    assert raised.value.retryable
    assert world.count() == 0


def test_h16_vectors_of_another_length_are_refused_with_the_fix(world: World, server: EmbeddingServer) -> None:
    world.write("a")
    world.run()
    server.dimensions = 16
    world.write("b")
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    with pytest.raises(EmbeddingRefused, match="16 dimensions, those stored have 8: name the dimensions"):
        world.work(claim)
    assert world.count() == 1
    assert world.vectors().count == 1


def test_a_job_that_lost_its_lease_stores_nothing(world: World, database: TestDatabase) -> None:
    world.write("a")
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    execute(database.admin, "update jobs set lease_token = gen_random_uuid() where job_id = %s", job)
    with pytest.raises(LeaseLost):
        world.work(claim)
    assert world.count() == 0


def test_a_long_run_makes_way_and_leaves_a_new_job(world: World, database: TestDatabase) -> None:
    world.write(*[f"text {n}" for n in range(300)])
    (job,) = world.waiting()
    claim = world.jobs.claim(job)
    assert claim is not None
    done = world.work(claim, slice_seconds=0)
    assert isinstance(done, Done)
    assert done.effects is not None
    assert done.locked == world.store
    with database.app.tenant(world.tenant) as tx:
        done.effects(tx)
    assert world.jobs.finish(claim)
    assert world.run() == {"embedded": 300, "reused": 0}


# -- erasure ----------------------------------------------------------------------------------------------------------


def test_an_erased_records_vector_goes_unless_another_record_has_its_text(world: World) -> None:
    first, twin, other = world.write("same", "same", "other")
    world.run()
    world.erase(recordId=first.rpartition("-b")[0])
    assert world.count() == 2
    world.erase(recordId=other.rpartition("-b")[0])
    assert world.count() == 1
    fresh = world.vectors(cache=VectorCache())
    assert fresh.similar(expected("same").astype(np.float32), 5).numbers.tolist() == [1]
    world.erase(recordId=twin.rpartition("-b")[0])
    assert world.count() == 0


def test_an_erased_store_leaves_no_vector(world: World, database: TestDatabase) -> None:
    world.made("second")
    world.write("GitHub", "shared", store="second")
    world.run()
    world.write("GitHub here", "shared")
    world.run()
    world.erase(store=True)
    assert world.count() == 2
    for table in ("vector_sets", "record_entities"):
        assert execute(database.admin, f"select count(*) from {table} where store_id = %s", world.store) == [(0,)]


def test_a_vector_that_arrives_after_the_erasure_is_not_kept(
    world: World, embedders: Embedders, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = world.write("gone", "stays")
    embedder = embedders.named(TENANT, "fake")
    embed = embedder.embed

    def slowly(texts: Any, purpose: Any, call: Any) -> Any:
        monkeypatch.setattr(embedder, "embed", embed)
        world.erase(recordId=first.rpartition("-b")[0])
        return embed(texts, purpose, call)

    monkeypatch.setattr(embedder, "embed", slowly)
    world.run()
    assert world.count() == 1
    found = world.vectors()
    assert found.count == 2
    assert found.similar(expected("gone").astype(np.float32), 5).numbers.tolist() == [1]


# -- search -----------------------------------------------------------------------------------------------------------


def test_a_cache_reads_only_what_is_new(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a", "b")
    world.run()
    assert world.vectors().count == 2
    asked: list[int] = []
    pages = caching._pages  # pyright: ignore[reportPrivateUsage]

    def watched(tx: Any, place: Any, found: Any, first: int) -> Any:
        asked.append(first)
        return pages(tx, place, found, first)

    monkeypatch.setattr(caching, "_pages", watched)
    world.write("c")
    world.run()
    found = world.vectors()
    assert asked == [2]
    assert found.similar(expected("c").astype(np.float32), 1).numbers.tolist() == [2]


def test_the_cache_is_bounded_and_a_store_beyond_it_is_streamed(world: World) -> None:
    texts = [f"text {n}" for n in range(300)]
    world.write(*texts)
    world.run()
    second = world.made("second")
    world.write(*texts[:100], store="second")
    world.run()
    query = expected("text 7").astype(np.float32)
    visible = np.arange(300) % 3 > 0
    exact = world.vectors().similar(query, 20, visible)
    small = VectorCache(limit=2_000)
    streamed = world.vectors(cache=small)
    assert small.nbytes == 0
    # A streamed search reads on in the transaction that opened it.
    with world.database.app.tenant(world.tenant) as tx:
        found = small.open(tx, world.tenant, world.store, world.space)
        assert found is not None
        assert found.similar(query, 20, visible).numbers.tolist() == exact.numbers.tolist()
        known, unknown = found.cosines(query, np.array([5, 900])).tolist()
        assert known == pytest.approx(float(expected("text 5") @ query), abs=1e-6)
        assert np.isnan(unknown)
    assert streamed.count == 300
    one = VectorCache(limit=12_000)
    world.vectors(cache=one)
    world.vectors(second, one)
    assert 0 < one.nbytes <= 12_000


def test_no_vectors_yet(world: World) -> None:
    world.write("a")
    with world.database.app.tenant(world.tenant) as tx:
        assert world.cache.open(tx, world.tenant, world.store, world.space) is None


def test_a_write_gets_its_vector_from_a_worker_of_the_product(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    """The whole way, with the built-in model: accept, commit, relay, the actor of `embed`, search."""
    if not builtin.installed():
        pytest.skip("the extra `embeddings` is not installed")
    with fleet(database, redis_url, tenant) as parts:
        parts.submitter()
        parts.worker()
        parts.worker("bulk")
        parts.relay()
        for text in ("The cat sleeps on the sofa.", "Taxes are due in April."):
            parts.accept("write", json.dumps({"text": text}))
        until(lambda: execute(database.admin, "select filled from vector_sets") == [(2,)])
    with embedders_alone() as embedders:
        embedder = embedders.named(tenant, "builtin")
        with database.app.tenant(tenant) as tx:
            found = VectorCache().open(tx, tenant, store_id_of(tx, tenant, "journal"), filling.space_of(embedder))
        assert found is not None
        assert found.similar(embedder.query("Wo schläft die Katze?", call()), 1).numbers.tolist() == [0]
