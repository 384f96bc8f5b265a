"""Replies: only what holds all that was asked for is believed (memory-agent.md §9; failure cases S12, S13)."""

import json
from typing import Any

import pytest

from core.models import judging, replies
from core.models.model import BadReply, Choice, ChoiceAnswer, Cut, Noul, NoulAnswer, Question, Score, ScoreAnswer
from core.models.replies import Tokens

ASKED: dict[str, Question] = {"n": Noul(), "c": Choice({"a": None, "b": "B"}), "s": Score(["0", "1", "2"])}
GOOD: dict[str, Any] = {
    "n": {"type": "noul", "noul": 0.25},
    "c": {"type": "choice", "choice": "b", "confidence": 0.7, "probabilities": {"a": 0.3, "b": 0.7}},
    "s": {
        "type": "score",
        "score": 1.2,
        "confidence": 1,
        "legend": {},
        "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3},
    },
}


def decided(**changes: Any) -> dict[str, Any]:
    answers = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    return replies.decided({"model": "m", "answers": answers}, ASKED)


def test_answers_come_typed_by_key() -> None:
    assert decided() == {
        "n": NoulAnswer(0.25),
        "c": ChoiceAnswer("b", {"a": 0.3, "b": 0.7}, 0.7),
        "s": ScoreAnswer(1.2, [0.1, 0.6, 0.3], 1.0),
    }


def changed(key: str, **fields: Any) -> dict[str, Any]:
    return {key: {name: value for name, value in {**GOOD[key], **fields}.items() if value is not ...}}


@pytest.mark.parametrize(
    "changes",
    [
        {"n": ...}, {"extra": GOOD["n"]}, {"n": GOOD["c"]}, {"n": None}, {"n": 0.5}, {"n": {"noul": 0.5}},
        changed("n", noul=...), changed("n", noul="0.5"), changed("n", noul=True), changed("n", noul=1.01),
        changed("n", noul=-0.1), changed("n", noul=float("nan")), changed("n", noul=10**400),
        changed("c", probabilities=...), changed("c", probabilities={"a": 1.0}), changed("c", probabilities=[0.3, 0.7]),
        changed("c", probabilities={"a": 0.3, "b": 0.6}), changed("c", probabilities={"a": 0.3, "b": 0.6, "c": 0.1}),
        changed("c", probabilities={"a": -0.3, "b": 1.3}), changed("c", choice="z"), changed("c", choice=...),
        changed("c", confidence=...), changed("c", confidence=2), changed("c", confidence=None),
        changed("s", score=2.5), changed("s", score=-0.1), changed("s", score=...), changed("s", probabilities=...),
        changed("s", probabilities={"0": 0.5, "1": 0.5}), changed("s", probabilities={"0": 0.1, "1": 0.6, "2": 0.35}),
    ],
)  # fmt: skip
def test_an_answer_that_lacks_something_spoils_the_reply(changes: dict[str, Any]) -> None:
    with pytest.raises(BadReply):
        decided(**changes)


def test_probabilities_may_be_off_by_two_hundredths() -> None:
    assert decided(**changed("c", probabilities={"a": 0.3, "b": 0.718}))
    with pytest.raises(BadReply, match="add up"):
        decided(**changed("c", probabilities={"a": 0.3, "b": 0.73}))


@pytest.mark.parametrize(
    "reply", [{}, {"model": "m"}, {"answers": GOOD}, {"model": 3, "answers": GOOD}, {"model": "m", "answers": []}]
)
def test_an_envelope_that_lacks_something(reply: dict[str, Any]) -> None:
    with pytest.raises(BadReply):
        replies.decided(reply, ASKED)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(BadReply):
        replies.decoded(body)


def completion(content: Any = "text", reason: Any = "stop") -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": reason}]}


def test_a_completion_that_ended_by_itself() -> None:
    assert replies.completed(completion(), structured=False, accept_cut=False) == ("text", False)
    assert replies.completed(completion(""), structured=False, accept_cut=False) == ("", False)


def test_a_token_length_finish_rejects_the_reply_unless_the_call_accepts_it() -> None:
    with pytest.raises(Cut, match="output limit"):
        replies.completed(completion(reason="length"), structured=True, accept_cut=False)
    assert replies.completed(completion(reason="length"), structured=False, accept_cut=True) == ("text", True)


@pytest.mark.parametrize(
    "reply",
    [
        {}, {"choices": []}, {"choices": {}}, {"choices": [None]}, {"choices": [{"finish_reason": "stop"}]}, completion(None),
        completion(5), completion(reason=None), completion(reason="content_filter"), completion(reason="tool_calls"),
        completion(" "),
    ],
)  # fmt: skip
def test_a_completion_without_a_text_or_an_end(reply: dict[str, Any]) -> None:
    with pytest.raises(BadReply):
        replies.completed(reply, structured=True, accept_cut=False)


@pytest.mark.parametrize(
    ("usage", "found"),
    [
        # DeepSeek and OpenAI: reasoning is part of the completion's tokens.
        ({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "prompt_cache_hit_tokens": 64,
          "completion_tokens_details": {"reasoning_tokens": 30}}, Tokens(100, 50)),
        # A backend that leaves it out of them: the total has it.
        ({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 150,
          "completion_tokens_details": {"reasoning_tokens": 30}}, Tokens(100, 50)),
        # A local server without a total, and one whose total makes no sense.
        ({"prompt_tokens": 7, "completion_tokens": 3}, Tokens(7, 3)),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 2}, Tokens(7, 3)),
        ({"prompt_tokens": 7}, None), ({"prompt_tokens": 7.0, "completion_tokens": 3}, None),
        ({"prompt_tokens": -1, "completion_tokens": 3}, None), ({"prompt_tokens": True, "completion_tokens": 3}, None),
        # Beyond what any model takes: no metering, not a price beyond all caps.
        ({"prompt_tokens": 100_000_001, "completion_tokens": 3}, None),
        ({"prompt_tokens": 7, "completion_tokens": 2**53 - 1}, None),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10**30}, None),
        ({"prompt_tokens": 100_000_000, "completion_tokens": 0}, Tokens(100_000_000, 0)),
        ("x", None), (None, None),
    ],
)  # fmt: skip
def test_s13_the_meters_of_completions(usage: Any, found: Tokens | None) -> None:
    assert replies.tokens({"usage": usage}, system_one=False) == found


def test_the_meter_of_decisions() -> None:
    assert replies.tokens({"usage": {"input_tokens": 5, "output_tokens": 0}}, system_one=True) == Tokens(5, 0)
    assert replies.tokens({"usage": {"prompt_tokens": 5, "completion_tokens": 0}}, system_one=True) is None
    assert replies.tokens({}, system_one=True) is None


# A completer as a judge ---------------------------------------------------------------------------------------------------


def judged(answers: Any) -> dict[str, Any]:
    return judging.answers(json.dumps({"answers": answers}), ASKED)


FROM_JUDGE = {"q1": 0.9, "q2": {"a": 0.25, "b": 0.75}, "q3": {"0": 0.5, "1": 0, "2": 0.5}}


def test_a_judges_answers_come_under_the_callers_keys() -> None:
    assert judged(FROM_JUDGE) == {
        "n": NoulAnswer(0.9),
        "c": ChoiceAnswer("b", {"a": 0.25, "b": 0.75}, 0.75),
        "s": ScoreAnswer(1.0, [0.5, 0.0, 0.5], 0.5),
    }


@pytest.mark.parametrize(
    "answers",
    [
        {}, [], None, {**FROM_JUDGE, "q4": 0.5}, {**FROM_JUDGE, "q1": "yes"}, {**FROM_JUDGE, "q1": True},
        {**FROM_JUDGE, "q1": 1.5}, {**FROM_JUDGE, "q2": "b"}, {**FROM_JUDGE, "q2": {"b": 1}},
        {**FROM_JUDGE, "q3": [0.5, 0, 0.5]}, {**FROM_JUDGE, "q3": {"0": 0.5, "1": 0, "2": 0.4}},
    ],
)  # fmt: skip
def test_a_judge_that_does_not_answer_as_asked(answers: Any) -> None:
    with pytest.raises(BadReply):
        judged(answers)


@pytest.mark.parametrize("text", ["", "Sure: {}", '```json\n{"answers": {}}\n```', '{"answers": {}, "why": ""}', "[]"])
def test_a_judge_that_talks(text: str) -> None:
    with pytest.raises(BadReply):
        judging.answers(text, ASKED)
