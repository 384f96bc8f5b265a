"""One store of records in seven scripts, with questions whose answers are known (tests/golden/languages.json, by hand).

The questions inflect and reword what the records say. Rivals are about the same things without being the answer. The other
records are made of parts: an opening, one or two events and a remark.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

RECORDS_PER_LANGUAGE = 150
_FILE = Path(__file__).parent.parent / "golden" / "languages.json"
_SPACED = {"ru", "el", "ko", "ar", "hi"}
_STOPS = {"ja": "。", "zh": "。", "hi": "।"}


@dataclass(frozen=True, slots=True)
class Question:
    """`answer` is the index of the one right record."""

    language: str
    text: str
    answer: int


def corpus(seed: int = 0) -> tuple[list[str], list[Question]]:
    """1,050 records, all languages mixed, and 70 questions."""
    chosen = random.Random(seed)
    records: list[tuple[str, str | None, str]] = []
    for language, parts in json.loads(_FILE.read_text("utf-8")).items():
        records += [(text, question, language) for text, question in parts["gold"]]
        records += [(text, None, language) for text in parts["rivals"]]
        for _ in range(RECORDS_PER_LANGUAGE - len(parts["gold"]) - len(parts["rivals"])):
            records.append((_made(parts, language, chosen), None, language))
    chosen.shuffle(records)
    questions = [
        Question(language, question, number)
        for number, (_, question, language) in enumerate(records)
        if question is not None
    ]
    return [text for text, _, _ in records], questions


def _made(parts: dict[str, list[str]], language: str, chosen: random.Random) -> str:
    space = " " if language in _SPACED else ""
    comma = space if language in _SPACED else "，" if language == "zh" else "、"
    stop = _STOPS.get(language, ".")
    first, second = chosen.sample(parts["events"], 2)
    opening, other = chosen.sample(parts["openings"], 2)
    told = [f"{opening}{comma}{first}{stop}", f"{other}{comma}{second}{stop}", chosen.choice(parts["remarks"])]
    if chosen.random() < 0.3:
        del told[1]
    return space.join(told)
