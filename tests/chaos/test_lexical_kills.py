"""Processes that die in the middle of index work, and writes, seals and searches all at once."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest

from core.errors import Unavailable
from core.search.lexical import sealing, writing
from core.search.lexical.building import maintain
from core.search.lexical.fallback import searched
from core.search.lexical.model import LexicalResult
from core.search.lexical.service import LexicalIndex
from tests.conftest import TestDatabase
from tests.fakes.memory import Memory, frozen_journal
from tests.fakes.ranking import literal
from tests.fakes.story import Story
from tests.rows import execute

DIES = """
import sys
from uuid import UUID
from core.faults import Faults
from core.search.lexical import sealing, writing
from core.search.lexical.building import maintain
from core.store.database import Database
dsn, tenant, store, point, rebuild = sys.argv[1:]
writing.SEAL = sealing.SEAL = 12
sealing.TIERS = (20, 40)
with Database(dsn, name="dies", size=2) as db:
    maintain(db, UUID(tenant), UUID(store), lambda: None, rebuild=rebuild == "rebuild", faults=Faults(f"{point}=kill:0.6"))
"""


@pytest.fixture
def memory(database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> Memory:
    for module, name, value in (
        (writing, "LOOSE", 5), (writing, "PACK", 14), (writing, "SEAL", 12), (sealing, "SEAL", 12),
        (sealing, "TIERS", (20, 40)), (writing, "SEAL_SECONDS", 0.2),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    return frozen_journal(database, tenant)


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["index.copied", "index.before"])
def test_killed_in_the_middle_of_a_seal_a_merge_or_a_rebuild(
    database: TestDatabase, memory: Memory, point: str
) -> None:
    story = Story(memory, random.Random(21))
    killed = 0
    for turn in range(8):
        memory.batch([story.item() for _ in range(16)])
        kind = "rebuild" if turn % 4 == 3 else "seal"
        command = [sys.executable, "-c", DIES, database.dsn("app"), str(memory.tenant), str(memory.store), point, kind]
        killed += subprocess.run(command, timeout=60, check=False).returncode == -9
        for _ in range(3):
            story.check()
    assert killed > 0, "nobody was killed: the test shows nothing"
    story.maintain()
    story.check()
    assert story.in_memory == 0
    assert execute(database.admin, "select count(*) from lexical_segments where retired") == [(0,)]
    assert execute(
        database.admin,
        """select count(*) from lexical_postings p
            where not exists (select from lexical_segments s where s.segment_id = p.segment_id)""",
    ) == [(0,)]


class Busy:
    """Threads that do their work over and over until they are stopped or one fails."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self.rounds = 0
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def __enter__(self) -> "Busy":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, work: Callable[[], object]) -> None:
        try:
            while not self.stopping.is_set():
                work()
                self.rounds += 1
        except BaseException as error:
            self.failures.append(error)
            self.stopping.set()


@pytest.mark.chaos
def test_writes_erasures_seals_rebuilds_and_searches_at_once(memory: Memory) -> None:
    index, chance = LexicalIndex(2**26), random.Random(4)
    looked: list[bool] = []

    def look(query: str = "tide") -> LexicalResult:
        """A search sees a whole state: each record once, and its statistics are of just these."""
        with searched(
            memory.db, index, memory.tenant, memory.store, query, version=1, revision=2**50, check=lambda: None
        ) as (_, found):
            pass
        assert len(set(found.ids)) == len(found.ids) == found.count == found.holders["tide"]
        looked.append(found.in_memory)
        return found

    def tend() -> None:
        # One that was overtaken too often gives up, as its job does, which is tried again.
        with suppress(Unavailable):
            maintain(memory.db, memory.tenant, memory.store, lambda: None, rebuild=chance.random() < 0.2)

    with Busy(tend, tend, look, look) as busy:
        for turn in range(40):
            items = [{"text": f"the tide {turn} {n}"} for n in range(1 if turn % 2 else 17)]
            first = memory.batch(items)["items"][0]["document"]["id"]
            assert first in [own_id.rpartition("-")[0] for own_id in look().ids]
            if turn % 7 == 6:
                memory.erase(recordId=first)
            if busy.stopping.is_set():
                break
    assert busy.failures == []
    assert busy.rounds > 4
    # The index may change more often between two statements than a search tries: then it is exact all the same.
    assert looked.count(True) <= len(looked) // 10
    maintain(memory.db, memory.tenant, memory.store, lambda: None)
    found = look("tide 7")
    assert not found.in_memory
    ranked = list(zip(found.ids, found.scores.tolist(), strict=True))
    assert ranked == literal(memory.db, memory.tenant, memory.store, "tide 7")
