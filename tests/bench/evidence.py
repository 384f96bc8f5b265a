"""LoCoMo and BEAM as conversations with questions whose evidence is known turns.

The data is not part of the project: LoCoMo (snap-research/LoCoMo, CC BY-NC 4.0, evaluation only) and BEAM-100K
(mohammadtavakoli78/BEAM, CC BY-SA 4.0). A turn's name is `D<session>:<turn>` there and the message's number here.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_TURN = re.compile(r"D\d+:\d+")
_MARK = re.compile(r"\s*->->\s*[^\s,]+,[^\s,]+\s*$")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True, slots=True)
class Turn:
    name: str
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Session:
    """One call of memory.writeConversation."""

    id: str
    at: datetime
    turns: Sequence[Turn]

    def body(self) -> dict[str, Any]:
        at = self.at.isoformat().replace("+00:00", "Z")
        messages = [{"role": turn.role, "content": turn.content, "at": at} for turn in self.turns]
        return {"sessionId": self.id, "messages": messages}


@dataclass(frozen=True, slots=True)
class Question:
    """`gold`: the names of the turns that answer it, at least one."""

    text: str
    gold: frozenset[str]
    category: str


@dataclass(slots=True)
class Chat:
    """One store of a data set. `half`: 1 or 2, by its place in the data set in turns; the ranking's constants may have been
    chosen on half 1."""

    name: str
    half: int
    sessions: list[Session] = field(default_factory=list[Session])
    questions: list[Question] = field(default_factory=list[Question])

    def texts(self) -> Iterator[str]:
        for session in self.sessions:
            for turn in session.turns:
                yield turn.content


def locomo(path: Path) -> list[Chat]:
    """Role: the speaker's name. A picture's caption stands behind the text as `[shared image: …]`."""
    chats: list[Chat] = []
    for place, sample in enumerate(_load(path)):
        chat = Chat(f"locomo-{place + 1}", 1 + place % 2)
        talk: Mapping[str, Any] = sample["conversation"]
        numbers = sorted(int(found[1]) for name in talk if (found := _SESSION.fullmatch(name)))
        for number in numbers:
            at = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
            turns = [Turn(turn["dia_id"], turn["speaker"], _said(turn)) for turn in talk[f"session_{number}"]]
            chat.sessions.append(Session(f"{sample['sample_id']}-{number}", at, turns))
        chat.questions = _asked(
            chat, ((q["question"], _TURN.findall(" ".join(q["evidence"])), str(q["category"])) for q in sample["qa"])
        )
        chats.append(chat)
    return chats


def beam(folder: Path) -> list[Chat]:
    """One session a batch, dated by its first time anchor. Questions whose evidence is nothing are left out."""
    chats: list[Chat] = []
    for place, path in enumerate(sorted(folder.iterdir(), key=lambda path: int(path.name))):
        chat = Chat(f"beam-{path.name}", 1 + place % 2)
        for batch in _load(path / "chat.json"):
            messages = [message for turns in batch["turns"] for message in turns]
            anchor = next(message["time_anchor"] for message in messages if message.get("time_anchor"))
            at = datetime.strptime(anchor, "%B-%d-%Y").replace(tzinfo=UTC)
            turns = [Turn(str(message["id"]), message["role"], _unmarked(message)) for message in messages]
            chat.sessions.append(Session(str(batch["batch_number"]), at, turns))
        asked = _load(path / "probing_questions.json")
        chat.questions = _asked(
            chat,
            (
                (q["question"], map(str, _integers(q.get("source_chat_ids"))), ability)
                for ability, group in asked.items()
                for q in group
            ),
        )
        chats.append(chat)
    return chats


def _asked(chat: Chat, questions: Any) -> list[Question]:
    known = {turn.name for session in chat.sessions for turn in session.turns}
    found = (Question(text, frozenset(named) & known, category) for text, named, category in questions)
    return [question for question in found if question.gold]


def _said(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return " ".join(filter(None, (turn["text"], f"[shared image: {caption}]" if caption else "")))


def _unmarked(message: Mapping[str, Any]) -> str:
    return _MARK.sub("", message["content"]) if message["role"] == "user" else message["content"]


def _integers(value: object) -> Iterator[int]:
    """All of them, however deep in lists and objects."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _integers(part)
    elif isinstance(value, list):
        for part in value:
            yield from _integers(part)


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
