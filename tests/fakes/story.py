"""A store with a random history, and searches in between that must give what the literal ranking gives."""

import random
from dataclasses import dataclass, field

import numpy as np

from core.search.lexical.building import maintain
from core.search.lexical.fallback import searched
from core.search.lexical.model import LexicalResult, Scope
from core.search.lexical.service import LexicalIndex
from tests.fakes.memory import Memory
from tests.fakes.ranking import literal, stored

WORDS = [
    "the",
    "cat",
    "sat",
    "Lisbon",
    "re-check",
    "02:21",
    "书屋",
    "猫",
    "café",
    "Ä",
    "ship",
    "yard",
    "x" * 300,
    "tide",
]
SCOPES: list[dict[str, str]] = [
    {},
    {},
    {"scope": "daily"},
    {"scope": "project", "workspaceId": "w1"},
    {"scope": "project", "workspaceId": "w2", "sessionId": "s1"},
    {"scope": "session", "sessionId": "s1"},
    {"scope": "session", "sessionId": "s2"},
    {"scope": "session", "sessionId": "s1", "workspaceId": "w1"},
    {"sessionId": "s3"},
]
TINY = 30_000


def processes() -> list[LexicalIndex]:
    return [LexicalIndex(2**28), LexicalIndex(TINY), LexicalIndex(2**28)]


@dataclass
class Story:
    memory: Memory
    chance: random.Random
    version: int = 1
    processes: list[LexicalIndex] = field(default_factory=processes)
    """They are asked in turn at random, so that each misses some states; one remembers nearly nothing."""
    in_memory: int = 0
    """Searches that the index could not serve."""

    def item(self) -> dict[str, str]:
        if self.chance.random() < 0.03:
            text = "sat " * 290 + "cat"  # a byte is too narrow for the frequency in its title and block
        else:
            weights = [2.0 / n for n in range(1, len(WORDS) + 1)]
            text = " ".join(self.chance.choices(WORDS, weights, k=self.chance.randint(0, 9))) or "."
        return {"text": text, **self.chance.choice(SCOPES)}

    def step(self) -> None:
        kinds = ["one", "few", "bulk", "erase", "session", "maintain", "rebuild", "mixed"]
        match self.chance.choices(kinds, [6, 3, 2, 2, 0.5, 2, 0.3, 1])[0]:
            case "one":
                self.memory.write(self.item())
            case "few":
                self.memory.write(*(self.item() for _ in range(self.chance.randint(2, 4))))
            case "bulk":
                self.memory.batch([self.item() for _ in range(self.chance.randint(5, 40))])
            case "session":
                self.memory.erase(sessionId=self.chance.choice(["s1", "s2", "s3"]))
            case "erase":
                self.memory.commit(*self._erasure())
            case "mixed":
                self.memory.commit(("write", self.item()), *self._erasure(), ("write", self.item()))
            case kind:
                self.maintain(rebuild=kind == "rebuild")

    def maintain(self, *, rebuild: bool = False) -> None:
        maintain(self.memory.db, self.memory.tenant, self.memory.store, lambda: None, rebuild=rebuild)

    def _erasure(self) -> list[tuple[str, dict[str, str]]]:
        rows = stored(self.memory.db, self.memory.tenant, self.memory.store)
        return [("erase", {"recordId": self.chance.choice(rows)["id"]})] if rows else []

    def check(self) -> LexicalResult:
        m, chance = self.memory, self.chance
        with m.db.tenant(m.tenant) as tx:
            newest: int = tx.value("store_revision", tenant=m.tenant, store=m.store)
        revision = chance.choice([newest, newest, chance.randint(0, newest)])
        workspace, session = chance.choice([None, None, "w1", "w2"]), chance.choice([None, "s1", "s2", "s4"])
        query = " ".join(chance.choices(WORDS, k=chance.randint(1, 6)))
        expected = literal(
            m.db, m.tenant, m.store, query, version=self.version, revision=revision, workspace=workspace,
            session=session,
        )  # fmt: skip
        limit = chance.choice([None, 1, 3, 10])
        with searched(
            m.db, chance.choice(self.processes), m.tenant, m.store, query, version=self.version, revision=revision,
            scope=Scope(workspace, session), limit=limit, check=lambda: None,
        ) as (_, found):  # fmt: skip
            pass
        self.in_memory += found.in_memory
        assert list(zip(found.ids, found.scores.tolist(), strict=True)) == expected[:limit]
        matching = np.flatnonzero(found.every)
        ids = {row["number"]: row["id"] for row in stored(m.db, m.tenant, m.store)}
        assert {ids[number]: float(found.every[number]) for number in matching.tolist()} == dict(expected)
        assert self.processes[1].cache.size <= TINY
        return found
