"""What a reply must look like to be believed (memory-agent.md §9.1–§9.3). Nothing of a reply is repeated in an error."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from core.models.model import Answer, BadReply, Choice, ChoiceAnswer, Cut, Noul, NoulAnswer, Question, ScoreAnswer
from core.models.requests import kind_of

SUM_TOLERANCE = 0.02
MOST_TOKENS = 100_000_000
"""Of a count that can be believed: a hundred times what any model takes."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the provider's meter says."""

    input: int
    output: int


def decoded(body: bytes) -> dict[str, Any]:
    """The JSON object of a reply. Raises BadReply."""
    try:
        value: object = json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadReply("the reply is not JSON") from None
    if not isinstance(value, dict):
        raise BadReply("the reply is not a JSON object")
    return cast("dict[str, Any]", value)


def tokens(reply: Mapping[str, Any], *, system_one: bool) -> Tokens | None:
    """The metering; None when it is missing or makes no sense.

    Reasoning tokens are output: where a backend leaves them out of its completion tokens, the total has them
    (failure-cases.md S13)."""
    usage: object = reply.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = cast("dict[str, Any]", usage)
    if system_one:
        given = _count(counts.get("input_tokens")), _count(counts.get("output_tokens"))
    else:
        given = _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens"))
    if given[0] is None or given[1] is None:
        return None
    total = None if system_one else _count(counts.get("total_tokens"))
    found = Tokens(given[0], max(given[1], (total or 0) - given[0]))
    return found if max(found.input, found.output) <= MOST_TOKENS else None


def model_of(reply: Mapping[str, Any]) -> str:
    """The reply's own name of its model; "" when it gives none."""
    model: object = reply.get("model")
    return model if isinstance(model, str) else ""


# Completions ------------------------------------------------------------------------------------------------------------


def completed(reply: Mapping[str, Any], *, structured: bool, accept_cut: bool) -> tuple[str, bool]:
    """The text, and whether it ended at the output limit. Raises Cut when that is not accepted, BadReply."""
    choices: object = reply.get("choices")
    first: object = cast("list[Any]", choices)[0] if isinstance(choices, list) and choices else None
    choice = cast("dict[str, Any]", first) if isinstance(first, dict) else {}
    message: object = choice.get("message")
    text: object = cast("dict[str, Any]", message).get("content") if isinstance(message, dict) else None
    reason: object = choice.get("finish_reason")
    if reason == "length":
        if not accept_cut:
            raise Cut("the reply ended at the output limit: raise the profile's maxTokens, or ask for less")
        return text if isinstance(text, str) else "", True
    if reason != "stop":
        raise BadReply("the reply did not end by itself")
    if not isinstance(text, str) or (structured and not text.strip()):
        raise BadReply("the reply has no text")
    return text, False


# Decisions --------------------------------------------------------------------------------------------------------------


def decided(reply: Mapping[str, Any], questions: Mapping[str, Question]) -> dict[str, Answer]:
    """One answer a question, none more (System One). Raises BadReply."""
    if not model_of(reply):
        raise BadReply("the reply names no model")
    given: object = reply.get("answers")
    if not isinstance(given, dict):
        raise BadReply("the reply has no object `answers`")
    answers = cast("dict[str, Any]", given)
    if answers.keys() != questions.keys():
        raise BadReply("the reply's answers are not those to the questions asked")
    return {key: _answer(question, answers[key]) for key, question in questions.items()}


def _answer(question: Question, given: object) -> Answer:
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if fields.get("type") != kind_of(question):
        raise BadReply("an answer is not of its question's type")
    if isinstance(question, Noul):
        return NoulAnswer(probability(fields.get("noul")))
    if "confidence" not in fields:
        raise BadReply("an answer has no confidence")
    confidence = probability(fields["confidence"])
    if isinstance(question, Choice):
        shares = distribution(fields.get("probabilities"), list(question.criteria))
        choice: object = fields.get("choice")
        if not isinstance(choice, str) or choice not in question.criteria:
            raise BadReply("a choice is none of its labels")
        return ChoiceAnswer(choice, shares, confidence)
    levels = [str(level) for level in range(len(question.criteria))]
    shares = distribution(fields.get("probabilities"), levels)
    score = _number(fields.get("score"))
    if not 0 <= score <= len(levels) - 1:
        raise BadReply("a score is outside its levels")
    return ScoreAnswer(score, [shares[level] for level in levels], confidence)


def probability(value: object) -> float:
    """Raises BadReply unless it is a finite number in [0, 1]."""
    number = _number(value)
    if not 0 <= number <= 1:
        raise BadReply("a probability is outside 0 to 1")
    return number


def distribution(given: object, labels: list[str]) -> dict[str, float]:
    """Probabilities of exactly the labels, adding up to 1 ± 0.02, in the labels' order. Raises BadReply."""
    if not isinstance(given, dict):
        raise BadReply("an answer has no probabilities")
    shares = cast("dict[str, Any]", given)
    if shares.keys() != set(labels):
        raise BadReply("an answer's probabilities are not those of its labels")
    found = {label: probability(shares[label]) for label in labels}
    if abs(sum(found.values()) - 1) > SUM_TOLERANCE:
        raise BadReply("an answer's probabilities do not add up to 1")
    return found


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadReply("an answer lacks a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadReply("an answer has a number that is not finite")
    return number


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
