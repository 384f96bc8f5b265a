"""Fusing several rankings of one search into one (memory-agent.md §3)."""

from collections.abc import Sequence

DEPTH = 200
"""Of each ranking, this many count."""
RANK_OFFSET = 60


def share(rank: int) -> float:
    """What a place in one ranking is worth; ranks count from 0."""
    return 1 / (RANK_OFFSET + rank)


def rrf(rankings: Sequence[Sequence[str]]) -> list[tuple[str, float]]:
    """Ids with their scores, best first: reciprocal rank fusion over the first 200 of each ranking.

    A ranking holds an id once. Equal scores are in code-point order of their ids. What no ranking has among its first
    200 is not returned."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, own_id in enumerate(ranking[:DEPTH]):
            scores[own_id] = scores.get(own_id, 0.0) + share(rank)
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
