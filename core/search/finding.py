"""The routes that find records by something else than their words or meaning (contract.md, decisions).

Each gives document numbers, best first, of what the caller may see at the search's revision; an empty list: the route is
silent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from core.search import entities, temporal
from core.search.fusion import DEPTH
from core.search.lexical.model import NO_SCOPE, Scope
from core.search.lexical.service import ids_of
from core.search.routes import RECENT, Walk, traverse
from core.store.database import Tx, as_text

HOLDERS = 2_000
"""Of one entity, the newest records looked at. What more of them hold says little."""
NEIGHBOURS = 50
"""The same for one step of a traversal."""


@dataclass(frozen=True, slots=True)
class Finder:
    """One search's look at a store. `end`: the store's number at the revision; `scope`: what the caller may see; `all_seen`:
    that is known to be every record."""

    tx: Tx
    tenant_id: UUID
    store_id: UUID
    end: int
    scope: Scope = NO_SCOPE
    all_seen: bool = False

    def ids(self, numbers: Iterable[NDArray[np.int64]]) -> dict[int, str]:
        """Of the records with these numbers that are still there."""
        return ids_of(self.tx, self.tenant_id, self.store_id, {number for some in numbers for number in some.tolist()})

    def by_entities(self, question: str) -> list[int]:
        """Records by their share of the question's entities, the newest first among equals; at most 200."""
        named = self.entities_of_question(question)
        if not named:
            return []
        held: dict[int, int] = {}
        for numbers in self._with(named, HOLDERS).values():
            for number in numbers:
                held[number] = held.get(number, 0) + 1
        return sorted(held, key=lambda number: (-held[number], -number))[:DEPTH]

    def entities_of_question(self, question: str) -> list[str]:
        """Entities by pattern, then words that the store knows as entities; at most 64."""
        found = entities.entities(question)
        words = [word for word in entities.words(question) if word not in found]
        known: set[str] = set()
        if words:
            rows = self.tx.rows("known_entities", tenant=self.tenant_id, store=self.store_id, entities=words)
            known = {row["entity"] for row in rows}
        return [*found, *(word for word in words if word in known)][: entities.QUESTION_ENTITIES]

    def by_time(self, named: Sequence[temporal.Span]) -> list[int]:
        """Records by their distance to the nearest of the spans, then to its named edge; at most 200."""
        near: dict[int, datetime] = {}
        for span in named:
            near |= self._around(span)
        return sorted(near, key=lambda number: (*temporal.distance(near[number], named), -number))[:DEPTH]

    def newest(self) -> list[int]:
        """By the time of their event; at most 20."""
        return list(self._side("records_before", "infinity", RECENT))

    def traverse(self, anchors: Sequence[int]) -> Walk:
        """From the first 5 of the candidates over shared entities."""
        return traverse(anchors, self._entities_of, lambda names: self._with(names, NEIGHBOURS))

    def _around(self, span: temporal.Span) -> dict[int, datetime]:
        """What may be among the 200 nearest of a span. From the named edge both ways: inside it the nearest to the edge come
        first, and outside on the far side only when that is not enough."""
        edge = span.start if span.start is not None else span.end
        found = self._side("records_before", edge, DEPTH) | self._side("records_from", edge, DEPTH)
        if span.start is not None and span.end is not None:
            found |= self._side("records_from", span.end, DEPTH)
        return found

    def _side(self, query: str, moment: object, limit: int) -> dict[int, datetime]:
        rows = self.tx.rows(
            query,
            tenant=self.tenant_id,
            store=self.store_id,
            moment=moment,
            end=self.end,
            limit=limit,
            **self._visible(),
        )
        return {row["number"]: row["event_at"] for row in rows}

    def _with(self, names: Sequence[str], limit: int) -> dict[str, list[int]]:
        asked: dict[str, Any] = {
            "tenant": self.tenant_id, "store": self.store_id, "entities": list(names), "end": str(self.end), "limit": limit,
        }  # fmt: skip
        if self.all_seen:
            rows = self.tx.binary("records_with_entities", **asked)
        else:
            rows = self.tx.binary("visible_records_with_entities", **asked, **self._visible())
        return {row["entity"]: row["numbers"] for row in rows}

    def _entities_of(self, numbers: Sequence[int]) -> Mapping[int, Sequence[str]]:
        rows = self.tx.rows("entities_of_records", tenant=self.tenant_id, store=self.store_id, numbers=as_text(numbers))
        found: dict[int, list[str]] = {}
        for row in rows:
            found.setdefault(row["number"], []).append(row["entity"])
        return found

    def _visible(self) -> dict[str, str | None]:
        return {"workspace": self.scope.workspace_id, "session": self.scope.session_id}
