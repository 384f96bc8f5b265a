"""Words and how much two texts share of them: all that the rehearsal models know about language."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from core.search.analysis import analyse

NAMES = frozenset({"id", "type", "role"})
"""Fields that name or classify, and say nothing."""


def words(value: object) -> set[str]:
    """The stems in a text, or in all texts of a JSON value; no stop words."""
    return {word for text in texts(value) for word in analyse(text, 2)}


def texts(value: object) -> list[str]:
    """The strings of a JSON value, in order, but for those that only name something."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return [text for name, part in fields.items() if name not in NAMES for text in texts(part)]
    if isinstance(value, Sequence):
        return [text for part in cast("Sequence[object]", value) for text in texts(part)]
    return []


def rarity(groups: Iterable[set[str]]) -> Mapping[str, float]:
    """What a word is worth: the less, the more of the groups have it. A word of none is worth 1: use `.get(word, 1.0)`."""
    counts = Counter(word for group in groups for word in group)
    return {word: 1.0 / count for word, count in counts.items()}


def shared(one: set[str], other: set[str], worth: Mapping[str, float]) -> float:
    """The share of the smaller side's worth that both have, 0 to 1; 0 when a side has no words."""
    smaller = min(one, other, key=len)
    whole = sum(worth.get(word, 1.0) for word in smaller)
    return sum(worth.get(word, 1.0) for word in one & other) / whole if whole else 0.0
