"""The lexical index gives what the literal ranking gives: ids, order and scores, to the last bit, whatever happened."""

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from core.errors import Unavailable
from core.faults import Faults
from core.search.lexical import building, erasing, fallback, known, sealing, service, writing
from core.search.lexical.building import go_on, maintain
from core.search.lexical.fallback import searched
from core.search.lexical.service import LexicalIndex
from core.search.lexical.writing import request_job
from core.tenants.config import Index, StoreConfig
from core.tenants.stores import put_store
from tests.conftest import TestDatabase
from tests.fakes.fleet import fleet
from tests.fakes.memory import Memory, frozen_journal
from tests.fakes.ranking import literal
from tests.fakes.story import Story
from tests.rows import execute


@pytest.fixture
def memory(database: TestDatabase, tenant: UUID) -> Memory:
    return frozen_journal(database, tenant)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few records, so that a short story has many of them."""
    for module, name, value in (
        (writing, "LOOSE", 5), (writing, "PACK", 14), (writing, "SEAL", 12), (sealing, "SEAL", 12),
        (sealing, "TIERS", (20, 40)), (sealing, "PAGE", 7), (sealing, "GARBAGE_PAGE", 5), (sealing, "INSERTED", 9),
        (known, "FEW", 2), (building, "PAGE", 4), (building, "LAST", 6), (writing, "SEAL_SECONDS", 0.2),
        (fallback, "PAGE", 5), (erasing, "PAGE", 6), (service, "SMALL", 30),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def found(memory: Memory, query: str, index: LexicalIndex | None = None, **more: Any) -> Sequence[tuple[str, float]]:
    """By the index, which must have it."""
    with searched(
        memory.db, index or LexicalIndex(2**28), memory.tenant, memory.store, query, check=lambda: None,
        **{"version": 1, "revision": 2**50, **more},
    ) as (_, result):  # fmt: skip
        pass
    assert not result.in_memory
    return list(zip(result.ids, result.scores.tolist(), strict=True))


def use_version(database: TestDatabase, memory: Memory, version: int) -> None:
    """What storing a configuration with another index version does to a store."""
    statement = "update stores set config = jsonb_set(config, '{index,version}', %s::text::jsonb) where store_id = %s"
    execute(database.admin, statement, version, memory.store)


@pytest.mark.parametrize("seed", range(4))
def test_exact_whatever_happens(database: TestDatabase, memory: Memory, small: None, seed: int) -> None:
    story = Story(memory, random.Random(seed))
    for _ in range(60):
        story.step()
        story.check()
    assert story.in_memory == 0
    ((sealed,),) = execute(database.admin, "select count(*) from lexical_segments where packed is null and not retired")
    assert sealed > 0, "nothing was sealed: the story is too short"


def test_exact_through_changes_of_version(database: TestDatabase, memory: Memory, small: None) -> None:
    story = Story(memory, random.Random(99))
    for turn in range(60):
        if turn % 15 == 14:
            story.version = 3 - story.version
            use_version(database, memory, story.version)
        story.step()
        story.check()
    assert 0 < story.in_memory < 60
    story.maintain()
    assert not story.check().in_memory
    rows = execute(database.admin, "select state, version from lexical_indexes")
    assert rows == [("active", story.version)]
    assert execute(database.admin, "select count(*) from lexical_segments where retired") == [(0,)]


def test_a_store_without_an_index_is_ranked_in_memory_until_a_job_has_built_it(
    database: TestDatabase, memory: Memory, small: None
) -> None:
    story = Story(memory, random.Random(5))
    memory.batch([story.item() for _ in range(30)])
    for table in ("lexical_postings", "lexical_segments", "lexical_indexes", "lexical_scopes"):
        execute(database.admin, f"delete from {table}")  # as a store looks that is older than the index
    execute(database.admin, "delete from jobs where kind = 'index'")
    story.check()
    assert story.in_memory == 1
    memory.write(story.item())
    assert execute(database.admin, "select kind, queue, state from jobs where kind = 'index'") == [
        ("index", "embed.bulk", "queued")
    ]
    memory.write(story.item())
    assert execute(database.admin, "select count(*) from jobs where kind = 'index'") == [(1,)]
    story.maintain()
    for _ in range(10):
        story.check()
    assert story.in_memory == 1


def test_what_is_written_while_a_job_works_gets_a_job_of_its_own(
    database: TestDatabase, memory: Memory, small: None
) -> None:
    """Its writers saw that job, and asked for none."""

    def waiting() -> list[UUID]:
        rows = execute(database.admin, "select job_id from jobs where kind = 'index' and finished_at is null")
        return [row[0] for row in rows]

    def end(*jobs: UUID) -> None:
        execute(
            database.admin, "update jobs set state = 'succeeded', finished_at = now() where job_id = any(%s)", [*jobs]
        )
        with memory.db.tenant(memory.tenant) as tx:
            go_on(tx, memory.tenant, memory.store)

    for turn in range(4):
        memory.batch([{"text": f"the tide {turn} {n}"} for n in range(6)])
    first = waiting()
    assert len(first) == 1
    end(*first)
    second = waiting()
    assert len(second) == 1
    assert second != first
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    end(*second)
    assert waiting() == []


def test_what_is_loose_asks_for_no_job(database: TestDatabase, memory: Memory, small: None) -> None:
    """A job could not seal it: each write would ask for another that does nothing."""
    memory.batch([{"text": f"the tide {n}"} for n in range(10)])
    asked = "select count(*) from jobs where kind = 'index'"
    for n in range(4):
        memory.write({"text": f"the ebb {n}"})
        assert execute(database.admin, asked) == [(0,)], "ten are packed, the others loose"
    memory.write({"text": "the ebb"})
    (delay,) = execute(
        database.admin,
        "select extract(epoch from run_at - created_at)::float8, due_at = run_at from jobs where kind = 'index'",
    )
    assert delay == (pytest.approx(0.2), True)
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    assert execute(database.admin, "select sealed_to from lexical_indexes") == [(15,)]


def test_searches_are_planned_once(memory: Memory, small: None) -> None:
    """Where a plan for these very values looks cheaper Postgres plans each time anew: that takes longer than it saves."""
    memory.batch([{"text": f"the tide {n}"} for n in range(60)])
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    kept = LexicalIndex(2**28)
    with memory.db.tenant(memory.tenant) as tx:
        for n in range(40):
            for index in (kept, LexicalIndex(2**28)):
                assert index.search(tx, memory.tenant, memory.store, f"tide {n} {n + 1}", version=1) is not None
        rows = tx._connection.execute(  # pyright: ignore[reportPrivateUsage]
            "select statement, custom_plans from pg_prepared_statements where generic_plans + custom_plans > 30"
        ).fetchall()
    assert len([row for row in rows if "lexical_" in row["statement"]]) >= 2, rows
    for row in rows:
        assert row["custom_plans"] <= 5, row


def test_equal_scores_come_in_the_order_of_their_ids(memory: Memory) -> None:
    """Thousands of identical records, ids in no order: all of them tie at the bound."""
    ids = [f"{n * 7919 % 3000:04d}" for n in range(3000)]
    for start in range(0, 3000, 1000):
        memory.batch([{"id": own_id, "text": "the same tide"} for own_id in ids[start : start + 1000]])
    best = found(memory, "tide", limit=16)
    assert [own_id for own_id, _ in best] == [f"{n:04d}-b0000" for n in range(16)]
    assert len({score for _, score in best}) == 1


def test_an_erased_record_leaves_no_trace(database: TestDatabase, memory: Memory, small: None) -> None:
    secret = {"text": "the zanzibar cat", "scope": "session", "sessionId": "hush-hush"}
    place = [{"text": f"the cat {n}"} for n in range(20)]
    memory.batch([*place, secret])
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    memory.batch([secret, *place])
    memory.write(secret)
    index = LexicalIndex(2**28)
    assert found(memory, "zanzibar", index) == []
    assert traces(database, "zanzibar") > 0
    memory.erase(sessionId="hush-hush")
    assert traces(database, "zanzibar") == 0
    assert execute(database.admin, "select count(*) from lexical_scopes") == [(0,)]
    assert found(memory, "the cat 7", index) == literal(memory.db, memory.tenant, memory.store, "the cat 7")
    memory.erase(store=True)
    for table in ("lexical_postings", "lexical_segments", "lexical_indexes", "lexical_scopes"):
        assert execute(database.admin, f"select count(*) from {table}") == [(0,)]


def traces(database: TestDatabase, word: str) -> int:
    ((terms,),) = execute(database.admin, "select count(*) from lexical_postings where term = %s", word)
    ((packed,),) = execute(
        database.admin, "select count(*) from lexical_segments where position(%s::bytea in packed) > 0", word.encode()
    )
    return terms + packed


def test_erasure_finds_what_an_older_analysis_indexed(
    database: TestDatabase, memory: Memory, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = memory.batch([{"text": f"zanzibar {n}"} for n in range(20)])["items"][3]["document"]["id"]
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    monkeypatch.setattr(erasing, "record_terms", lambda canonical, version: ["another"])
    memory.erase(recordId=gone)
    assert found(memory, "zanzibar 3") == literal(memory.db, memory.tenant, memory.store, "zanzibar 3")
    assert execute(database.admin, "select count(*) from lexical_postings where term = '3'") == [(0,)]


@pytest.mark.parametrize("point", ["index.copied", "index.before"])
def test_work_that_ends_halfway_leaves_nothing(database: TestDatabase, memory: Memory, small: None, point: str) -> None:
    story = Story(memory, random.Random(11))
    for _ in range(3):
        memory.batch([story.item() for _ in range(14)])
    before = execute(database.admin, "select segment_id from lexical_segments order by 1")
    for rebuild in (False, True):
        with pytest.raises(Unavailable):
            maintain(
                memory.db, memory.tenant, memory.store, lambda: None, rebuild=rebuild, faults=Faults(f"{point}=raise")
            )
        assert execute(database.admin, "select segment_id from lexical_segments order by 1") == before
        assert execute(database.admin, "select count(*) from lexical_postings") == [(0,)]
        story.check()
    story.maintain()
    assert execute(database.admin, "select count(*) from lexical_postings")[0][0] > 0
    for _ in range(5):
        story.check()
    assert story.in_memory == 0


def test_memory_is_bounded_over_all_stores(database: TestDatabase, tenant: UUID) -> None:
    chance = random.Random(3)
    memories: list[Memory] = []
    for n in range(8):
        with database.app.tenant(tenant) as tx:
            store, _ = put_store(tx, tenant, f"store-{n}", StoreConfig(index=Index(version=1)))
        memories.append(Memory(database.app, tenant, store.id, store.name))
        memories[-1].batch([Story(memories[-1], chance).item() for _ in range(400)])
    limit = 200_000
    index, largest = LexicalIndex(limit), 0
    for _ in range(200):
        memory = chance.choice(memories)
        found(memory, " ".join(chance.choices(["the", "cat", "ship", "tide", "nowhere"], k=3)), index)
        assert index.cache.size <= limit
        largest = max(largest, index.cache.size)
    assert largest > limit // 2, "the bound was never near: the test shows nothing"


def test_a_worker_seals_what_bulk_writes_leave_and_rebuilds_on_demand(
    database: TestDatabase, redis_url: str, tenant: UUID, memory: Memory, small: None
) -> None:
    story = Story(memory, random.Random(8))
    memory.batch([story.item() for _ in range(14)])
    with fleet(database, redis_url, tenant) as parts:
        parts.worker("bulk")
        parts.relay()
        ((sealing_job,),) = execute(database.admin, "select job_id from jobs where kind = 'index'")
        assert parts.wait(sealing_job)[0].state == "succeeded"
        assert execute(database.admin, "select build, sealed_to from lexical_indexes") == [(1, 14)]
        with memory.db.tenant(tenant) as tx:
            rebuilding = request_job(tx, tenant, memory.store, rebuild=True)
        assert rebuilding is not None
        assert parts.wait(rebuilding)[0].state == "succeeded"
        assert execute(database.admin, "select build, state from lexical_indexes") == [(2, "active")]
    story.check()
