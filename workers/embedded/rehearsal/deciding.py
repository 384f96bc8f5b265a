"""Typed questions answered by shared words (memory-agent.md §9.1).

What a question is about is the parts of the state that have an `id` which the question names. It is compared with what the
question and the rest of the state say. A question that names none is compared with the whole state. `RULES` may answer
first: a place for what a certain prompt needs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from workers.embedded.rehearsal.words import rarity, shared, texts, words

LEAST, MOST = 0.05, 0.95
ENOUGH = 0.5
"""This share of words in common is as good as certain."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what it can be compared with."""

    question: Mapping[str, Any]
    about: Sequence[set[str]]
    """The words of the parts it names, a set a part."""
    rest: set[str]
    worth: Mapping[str, float]

    @property
    def wording(self) -> str:
        return " ".join(texts([self.question.get("instructions"), self.question.get("criteria")])).lower()

    @property
    def likeness(self) -> float:
        """How much what it is about has in common: two parts with one another, one with all else."""
        if len(self.about) > 1:
            return shared(self.about[0], set[str]().union(*self.about[1:]), self.worth)
        own = words([self.question.get("instructions"), self.question.get("criteria")])
        return shared(self.about[0], self.rest, self.worth) if self.about else shared(own, self.rest, self.worth)


def _overtaken(asked: Asked) -> float | None:
    """Whether something no longer holds: only outright words say so."""
    if not re.search(r"no longer|overtaken|supersed|contradict|outdated", asked.wording):
        return None
    said = words("cancelled changed instead moved replaced stopped quit anymore") & asked.rest
    return ENOUGH + 0.1 if said and asked.likeness > ENOUGH else LEAST


RULES: tuple[Callable[[Asked], float | None], ...] = (_overtaken,)
"""Each may give P(yes) of a noul, or None; the first that does is believed."""


def answers(state: object, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """One answer a question. Raises ValueError, TypeError, KeyError for what is none of the three types."""
    named = {str(part["id"]): part for part in _parts(state)}
    bags = {name: words(part) for name, part in named.items()}
    worth = rarity(bags.values())
    everything, apart = words(state), words(_without(state, named.values()))
    return {
        key: _answer(_asked(question, bags, everything if not _names(question, bags) else apart, worth), state)
        for key, question in questions.items()
    }


def _asked(
    question: Mapping[str, Any], bags: Mapping[str, set[str]], rest: set[str], worth: Mapping[str, float]
) -> Asked:
    return Asked(question, [bags[name] for name in _names(question, bags)], rest, worth)


def _names(question: Mapping[str, Any], bags: Mapping[str, set[str]]) -> list[str]:
    """The ids that a question names, in its own order."""
    said = re.findall(r"[\w.:-]+", " ".join(_strings(question.get("instructions"))))
    return list(dict.fromkeys(word.strip(".:") for word in said if word.strip(".:") in bags))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int):
        yield str(value)
    elif isinstance(value, Mapping):
        for part in cast("Mapping[str, object]", value).values():
            yield from _strings(part)
    elif isinstance(value, Sequence):
        for part in cast("Sequence[object]", value):
            yield from _strings(part)


def _parts(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a state that have an id."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        if "id" in fields:
            yield fields
        for part in fields.values():
            yield from _parts(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in cast("Sequence[object]", value):
            yield from _parts(part)


def _without(value: object, parts: Any) -> object:
    known = {id(part) for part in parts}
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {name: _without(part, parts) for name, part in fields.items() if id(part) not in known}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without(part, parts) for part in cast("Sequence[object]", value) if id(part) not in known]
    return value


# Answers ----------------------------------------------------------------------------------------------------------------


def _answer(asked: Asked, state: object) -> dict[str, Any]:
    kind = asked.question["type"]
    if kind == "noul":
        return {"type": "noul", "noul": _probability(asked)}
    if kind == "choice":
        shares = _choice(asked, state)
        best = max(shares, key=shares.__getitem__)
        return {"type": "choice", "choice": best, "confidence": shares[best], "probabilities": shares}
    if kind == "score":
        return _score(asked)
    raise ValueError(f"no question type {kind!r}; there are noul, choice and score")


def _probability(asked: Asked) -> float:
    for rule in RULES:
        if (found := rule(asked)) is not None:
            return round(found, 4)
    return _certainty(asked.likeness)


def _certainty(likeness: float) -> float:
    return round(LEAST + (MOST - LEAST) * min(1.0, likeness / ENOUGH), 4)


def _choice(asked: Asked, state: object) -> dict[str, float]:
    """Each label by what its name and description share with what is asked about."""
    criteria = cast("Mapping[str, object]", asked.question["criteria"])
    against = set[str]().union(*asked.about) if asked.about else words(state)
    weights = {label: 0.1 + shared(words([label, text]), against, {}) for label, text in criteria.items()}
    whole = sum(weights.values())
    return {label: weight / whole for label, weight in weights.items()}


def _score(asked: Asked) -> dict[str, Any]:
    """The likeness as a place on the scale; the two levels beside it share the probability."""
    criteria = cast("Sequence[object]", asked.question["criteria"])
    top = len(criteria) - 1
    place = top * (_certainty(asked.likeness) - LEAST) / (MOST - LEAST)
    below = min(int(place), top)
    shares = dict.fromkeys(map(str, range(len(criteria))), 0.0)
    shares[str(below)] += 1 - (place - below)
    if below < top:
        shares[str(below + 1)] += place - below
    return {
        "type": "score", "score": place, "confidence": max(shares.values()), "probabilities": shares,
        "legend": {str(level): text for level, text in enumerate(criteria)},
    }  # fmt: skip
