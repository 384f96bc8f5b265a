"""Completions by rule: the first of `RULES` that knows a prompt writes the reply; else words of the last message come back.

To rehearse a prompt, add a rule: `(request) -> text, or None when it is another prompt`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.models import judging
from core.search.analysis import analyse
from workers.embedded.rehearsal import deciding
from workers.embedded.rehearsal.words import words

WORDS = 12
BYTES_A_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Request:
    """`system`: the system messages; `last`: what the user said last."""

    system: str
    last: str
    structured: bool


def read(body: Mapping[str, Any]) -> Request:
    """Raises ValueError, KeyError, TypeError for a body that is no chat completion's."""
    messages = cast("Sequence[Mapping[str, str]]", body["messages"])
    if not messages:
        raise ValueError("there are no messages")
    system = "\n".join(message["content"] for message in messages if message["role"] == "system")
    said = [message["content"] for message in messages if message["role"] == "user"]
    wanted = cast("Mapping[str, object]", body.get("response_format") or {})
    return Request(system, said[-1] if said else "", wanted.get("type") == "json_object")


def _judge(request: Request) -> str | None:
    """A completer in the place of a judge (core/models/judging.py)."""
    if request.system != judging.prompt():
        return None
    asked = json.loads(request.last)
    found = deciding.answers(asked["state"], asked["questions"])
    return json.dumps(
        {"answers": {key: answer.get("noul", answer.get("probabilities")) for key, answer in found.items()}}
    )


RULES: tuple[Callable[[Request], str | None], ...] = (_judge,)


def reply(request: Request) -> str:
    for rule in RULES:
        if (text := rule(request)) is not None:
            return text
    return _unknown(request)


def _unknown(request: Request) -> str:
    """A prompt that no rule knows: its first words, in order, each once."""
    known = list(dict.fromkeys(word for word in analyse(request.last, 1) if words(word)))[:WORDS]
    return json.dumps({"rehearsal": True, "words": known}) if request.structured else " ".join(known)


def cut(text: str, tokens: int) -> tuple[str, bool]:
    """The text within an output limit, and whether something had to go."""
    most = tokens * BYTES_A_TOKEN
    encoded = text.encode()
    return (text, False) if len(encoded) <= most else (encoded[:most].decode("utf-8", "ignore"), True)
