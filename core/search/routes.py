"""Routes that walk from what was found: traversal over shared entities (contract.md, decisions)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ANCHORS = 5
HOPS = 2
REACHED = 20
RECENT = 20
"""The recency route's most."""


@dataclass(frozen=True, slots=True)
class Walk:
    """`numbers`: the anchors, then what was reached from them, nearest first. `linked`: something was reached."""

    numbers: list[int]
    linked: bool


def traverse(
    anchors: Sequence[int],
    entities_of: Callable[[Sequence[int]], Mapping[int, Sequence[str]]],
    records_with: Callable[[Sequence[str]], Mapping[str, Sequence[int]]],
) -> Walk:
    """Breadth-first from the first 5 candidates over shared entities: 2 hops, at most 20 records with the anchors.

    Within a hop records come by how many entities of the hop before they share, then newest first. The callables read a
    hop's entities and their records, each in one go; they show only what the search may see."""
    seen = dict.fromkeys(anchors[:ANCHORS])
    found = len(seen)
    frontier = list(seen)
    asked: set[str] = set()
    for _ in range(HOPS):
        named = entities_of(frontier)
        fresh = list(dict.fromkeys(entity for number in frontier for entity in named.get(number, ())))
        fresh = [entity for entity in fresh if entity not in asked]
        if not fresh or len(seen) >= REACHED:
            break
        asked.update(fresh)
        shared: dict[int, int] = {}
        for numbers in records_with(fresh).values():
            for number in numbers:
                if number not in seen:
                    shared[number] = shared.get(number, 0) + 1
        frontier = sorted(shared, key=lambda number: (-shared[number], -number))[: REACHED - len(seen)]
        seen.update(dict.fromkeys(frontier))
    return Walk(list(seen), len(seen) > found)
