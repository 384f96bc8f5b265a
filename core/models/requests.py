"""The body of each kind's request, encoded once, and the limits it must keep (memory-agent.md §9, §5).

JSON is compact UTF-8 without HTML escaping. units = UTF-16 code units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import InvalidRequest
from core.jsontext import dumps
from core.models.model import Choice, Completion, Noul, Question, Score
from core.models.profiles import DEEPSEEK_TOKENS, ModelProfile
from core.text import units

COMPLETION_BYTES = 160_000
DECISION_QUESTIONS = 128
DECISION_UNITS = 96_000
"""Of compact JSON of `{state, questions}`."""
JUDGE_QUESTIONS = 80
"""For a completer that stands in as a judge."""
TEXT_TOKENS = 1_024
JSON_TOKENS = 2_048


@dataclass(frozen=True, slots=True)
class Encoded:
    """A body as it is sent, and the output limit in it: 0 for System One, whose output is free."""

    body: bytes
    output_limit: int


def completion(profile: ModelProfile, request: Completion) -> Encoded:
    """Raises InvalidRequest: `messages` too large, or text that is no Unicode."""
    if not request.messages:
        raise InvalidRequest.field("messages", "send at least one")
    limit = profile.max_tokens or request.max_tokens or (JSON_TOKENS if request.json else TEXT_TOKENS)
    if profile.kind == "deepseek":
        limit = min(limit, DEEPSEEK_TOKENS)
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    body: dict[str, Any] = {"model": profile.model, "messages": messages, "max_tokens": limit}
    if profile.kind == "deepseek":
        # The vendor thinks unless told not to; when it thinks it takes no temperature.
        body["thinking"] = {"type": "enabled" if profile.thinking else "disabled"}
    if profile.thinking:
        body["reasoning_effort"] = "high"
    else:
        body["temperature"] = 0
    if request.json:
        body["response_format"] = {"type": "json_object"}
    encoded = _encoded(body, "messages")
    if len(encoded) > COMPLETION_BYTES:
        raise InvalidRequest.field(
            "messages", f"make a request of {len(encoded)} bytes; at most {COMPLETION_BYTES}: send less text"
        )
    return Encoded(encoded, limit)


def decision(profile: ModelProfile, state: object, questions: Mapping[str, Question]) -> Encoded:
    """For a kind that speaks System One. Raises InvalidRequest: too many `questions`, or too large."""
    check_questions(questions, DECISION_QUESTIONS)
    asked = {key: question_json(question) for key, question in questions.items()}
    body = _encoded({"model": profile.model, "state": state, "questions": asked}, "state")
    size = units(dumps({"state": state, "questions": asked}))
    if size > DECISION_UNITS:
        raise InvalidRequest.field(
            "questions", f"and state are {size} UTF-16 units of JSON; at most {DECISION_UNITS}: ask in parts"
        )
    return Encoded(body, 0)


def check_questions(questions: Mapping[str, Question], most: int) -> None:
    """Raises InvalidRequest unless there are 1 to `most`, each with something to choose from."""
    if not 1 <= len(questions) <= most:
        raise InvalidRequest.field("questions", f"are {len(questions)}; ask 1 to {most} in one call")
    for key, question in questions.items():
        if isinstance(question, Choice) and not question.criteria:
            raise InvalidRequest.field(f"questions.{key}", "is a choice without labels")
        if isinstance(question, Score) and len(question.criteria) < 2:
            raise InvalidRequest.field(f"questions.{key}", "is a score of fewer than two levels")


def question_json(question: Question) -> dict[str, Any]:
    """A question as System One takes it; what is None is left out."""
    shown: dict[str, Any] = {"type": kind_of(question)}
    if question.instructions is not None:
        shown["instructions"] = question.instructions
    match question:
        case Noul():
            sides = {"true": question.yes, "false": question.no}
            criteria = {name: side for name, side in sides.items() if side is not None}
            if criteria:
                shown["criteria"] = criteria
        case Choice():
            shown["criteria"] = dict(question.criteria)
        case Score():
            shown["criteria"] = list(question.criteria)
    return shown


def kind_of(question: Question) -> str:
    return "noul" if isinstance(question, Noul) else "choice" if isinstance(question, Choice) else "score"


def _encoded(body: Mapping[str, Any], field: str) -> bytes:
    try:
        return dumps(body).encode()
    except UnicodeEncodeError:
        raise InvalidRequest.field(field, "holds a lone surrogate; send whole Unicode characters") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest.field(field, f"has no JSON form: {error}") from None
