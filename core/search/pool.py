"""The cue pool: what several searches found, mixed so that each of them is heard (memory-agent.md §3)."""

from collections.abc import Sequence

from core.search.fusion import share

POOL = 48


def pool(searches: Sequence[Sequence[str]], limit: int = POOL) -> list[str]:
    """At most `limit` ids: first an equal share from each search in turn, then the rest by their fused score.

    A search's list holds an id once, best first. Of ids with equal scores the one seen first comes first."""
    quota = max(1, limit // max(1, len(searches)))
    taken: dict[str, None] = {}
    for found in searches:
        fresh = [own_id for own_id in found if own_id not in taken]
        taken.update(dict.fromkeys(fresh[: min(quota, limit - len(taken))]))
    scores: dict[str, float] = {}
    for found in searches:
        for rank, own_id in enumerate(found):
            scores[own_id] = scores.get(own_id, 0.0) + share(rank)
    rest = sorted((own_id for own_id in scores if own_id not in taken), key=lambda own_id: -scores[own_id])
    return [*taken, *rest[: limit - len(taken)]]
