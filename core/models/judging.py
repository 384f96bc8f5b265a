"""A completion model in the place of a decision model: the prompt, and the strict reading of its reply (memory-agent.md §5).

Questions are shown under short keys of our own, since the caller's may say something.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast

from core.errors import InvalidRequest
from core.jsontext import dumps
from core.models.model import (
    Answer,
    BadReply,
    Choice,
    ChoiceAnswer,
    Completion,
    Message,
    Noul,
    NoulAnswer,
    Question,
    ScoreAnswer,
)
from core.models.replies import decoded, distribution, probability
from core.models.requests import JUDGE_QUESTIONS, check_questions, question_json


@cache
def prompt() -> str:
    return (files("core.models") / "judging.txt").read_text("utf-8")


def request(state: object, questions: Mapping[str, Question]) -> Completion:
    """Raises InvalidRequest: too many questions, or what has no JSON form."""
    check_questions(questions, JUDGE_QUESTIONS)
    asked = {f"q{place}": question_json(question) for place, question in enumerate(questions.values(), 1)}
    try:
        shown = dumps({"state": state, "questions": asked})
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidRequest.field("state", f"has no JSON form: {error}") from None
    return Completion([Message("system", prompt()), Message("user", shown)], json=True)


def answers(text: str, questions: Mapping[str, Question]) -> dict[str, Answer]:
    """One answer a question, none more. Raises BadReply."""
    reply = decoded(text.encode("utf-8", "replace"))
    given: object = reply.get("answers")
    if len(reply) != 1 or not isinstance(given, dict):
        raise BadReply("the judge's reply is not one object `answers`")
    found = cast("dict[str, Any]", given)
    keys = [f"q{place}" for place in range(1, len(questions) + 1)]
    if found.keys() != set(keys):
        raise BadReply("the judge's answers are not those to the questions asked")
    return {own: _answer(question, found[key]) for key, (own, question) in zip(keys, questions.items(), strict=True)}


def _answer(question: Question, given: object) -> Answer:
    if isinstance(question, Noul):
        return NoulAnswer(probability(given))
    if isinstance(question, Choice):
        shares = distribution(given, list(question.criteria))
        choice = max(shares, key=shares.__getitem__)
        return ChoiceAnswer(choice, shares, shares[choice])
    levels = [str(level) for level in range(len(question.criteria))]
    found = distribution(given, levels)
    ordered = [found[level] for level in levels]
    score = sum(level * share for level, share in enumerate(ordered)) / sum(ordered)
    return ScoreAnswer(score, ordered, max(ordered))
