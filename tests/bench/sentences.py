"""Records of 600 characters and questions for measuring speed: shuffled sentences of the LoCoMo and BEAM texts."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence

from tests.bench.evidence import Chat

CHARACTERS = 600
QUESTIONS = 200
_BETWEEN = re.compile(r"(?<=[.!?])\s+|\n+")


def sentences(chats: Iterable[Chat]) -> list[str]:
    """Distinct, in order."""
    found = (" ".join(part.split()) for chat in chats for text in chat.texts() for part in _BETWEEN.split(text))
    return list(dict.fromkeys(part for part in found if len(part) >= 12))


def records(parts: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Each is one block. The sentences are used up before one comes again."""
    stream = _shuffled(parts, random.Random(seed))
    return [_record(stream) for _ in range(count)]


def _record(stream: Iterator[str]) -> str:
    text = next(stream)
    while len(text) < CHARACTERS:
        text += " " + next(stream)
    return text[:CHARACTERS].rstrip().ljust(CHARACTERS, ".")


def _shuffled(parts: Sequence[str], chance: random.Random) -> Iterator[str]:
    order = list(parts)
    while True:
        chance.shuffle(order)
        yield from order


def questions(chats: Iterable[Chat], count: int = QUESTIONS) -> list[str]:
    """One half the longest of LoCoMo's, the other drawn from the rest."""
    asked = {question.text.strip() for chat in chats if chat.name.startswith("locomo") for question in chat.questions}
    ordered = sorted(asked, key=lambda text: (-len(text), text))
    half = count // 2
    return ordered[:half] + random.Random(0).sample(ordered[half:], count - half)
