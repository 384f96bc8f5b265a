"""The bodies that providers get, to the byte, and the limits in their units (memory-agent.md §9, §5)."""

import json
from typing import Any

import pytest

from core.errors import InvalidRequest
from core.models import judging, requests
from core.models.model import Choice, Completion, Message, Noul, Question, Score
from core.models.profiles import ModelProfile

DEEPSEEK = ModelProfile("d", "deepseek", "deepseek-flash", "http://x")
OPENAI = ModelProfile("o", "openai", "gpt-4.1-mini", "http://x")
JEV = ModelProfile("j", "jev", "jev-1.13.0", "http://x")
HELLO = [Message("system", "s"), Message("user", "a < b & \"c\" > 'd' é 猫 \u2028")]


def sent(profile: ModelProfile, **more: Any) -> str:
    return requests.completion(profile, Completion(HELLO, **more)).body.decode()


def test_what_each_completer_is_sent() -> None:
    shown = (
        '"messages":[{"role":"system","content":"s"},{"role":"user","content":"a < b & \\"c\\" > \'d\' é 猫 \u2028"}]'
    )
    assert sent(DEEPSEEK) == (
        f'{{"model":"deepseek-flash",{shown},"max_tokens":1024,"thinking":{{"type":"disabled"}},"temperature":0}}'
    )
    assert sent(OPENAI, json=True) == (
        f'{{"model":"gpt-4.1-mini",{shown},"max_tokens":2048,"temperature":0,"response_format":{{"type":"json_object"}}}}'
    )
    thinking = ModelProfile("d", "deepseek", "deepseek-flash", "http://x", thinking=True)
    assert sent(thinking) == (
        f'{{"model":"deepseek-flash",{shown},"max_tokens":1024,"thinking":{{"type":"enabled"}},"reasoning_effort":"high"}}'
    )


@pytest.mark.parametrize(
    ("profile", "request_tokens", "as_json", "limit"),
    [
        (None, None, False, 1_024), (None, None, True, 2_048), (None, 8_192, True, 8_192), (4_000, 8_192, True, 4_000),
        (4_000, None, False, 4_000), (None, 50_000, True, 16_384),
    ],
)  # fmt: skip
def test_output_limits(profile: int | None, request_tokens: int | None, as_json: bool, limit: int) -> None:
    model = ModelProfile("d", "deepseek", "m", "http://x", max_tokens=profile)
    made = requests.completion(model, Completion(HELLO, request_tokens, json=as_json))
    assert made.output_limit == json.loads(made.body)["max_tokens"] == limit


def test_a_completion_of_160000_bytes_is_the_largest() -> None:
    empty = len(requests.completion(OPENAI, Completion([Message("user", "")])).body)
    fits = "é" * ((160_000 - empty) // 2)  # two bytes each
    assert len(requests.completion(OPENAI, Completion([Message("user", fits)])).body) in (159_999, 160_000)
    with pytest.raises(InvalidRequest, match="at most 160000") as refused:
        requests.completion(OPENAI, Completion([Message("user", fits + "éé")]))
    assert refused.value.fields[0].field == "messages"


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b"])
def test_a_lone_surrogate_reaches_no_provider(text: str) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        requests.completion(OPENAI, Completion([Message("user", text)]))
    with pytest.raises(InvalidRequest, match="surrogate"):
        requests.decision(JEV, text, {"q": Noul("is it?")})


def test_what_a_decision_is_sent() -> None:
    questions: dict[str, Question] = {
        "a": Noul("needed?", yes={"kind": "fact"}, no="else"),
        "b": Choice({"x": "an x", "y": None}, ["which", "one"]),
        "c": Score(["low", "high"]),
        "d": Noul(),
    }
    made = requests.decision(JEV, {"candidates": [{"id": "r1", "text": "<b>"}]}, questions)
    assert made.output_limit == 0
    assert made.body.decode() == (
        '{"model":"jev-1.13.0","state":{"candidates":[{"id":"r1","text":"<b>"}]},"questions":{'
        '"a":{"type":"noul","instructions":"needed?","criteria":{"true":{"kind":"fact"},"false":"else"}},'
        '"b":{"type":"choice","instructions":["which","one"],"criteria":{"x":"an x","y":null}},'
        '"c":{"type":"score","criteria":["low","high"]},"d":{"type":"noul"}}}'
    )


def test_a_decision_has_1_to_128_questions_and_96000_units() -> None:
    assert requests.decision(JEV, "s", {f"q{n}": Noul() for n in range(128)})
    for count in (0, 129):
        with pytest.raises(InvalidRequest, match="ask 1 to 128"):
            requests.decision(JEV, "s", {f"q{n}": Noul() for n in range(count)})
    frame = len('{"state":"","questions":{"q":{"type":"noul"}}}')
    # An emoji is two units: as JavaScript counts, not as bytes (four) or points (one).
    fits = "😀" * ((96_000 - frame) // 2)
    assert requests.decision(JEV, fits, {"q": Noul()})
    with pytest.raises(InvalidRequest, match="at most 96000"):
        requests.decision(JEV, fits + "😀", {"q": Noul()})


def test_a_stand_in_judge_takes_80_questions_under_keys_of_our_own() -> None:
    questions: dict[str, Question] = {f"secret {n}": Noul(f"q {n}") for n in range(80)}
    made = judging.request({"s": 1}, questions)
    assert made.json
    assert "secret" not in made.messages[1].content
    assert json.loads(made.messages[1].content)["questions"]["q80"] == {"type": "noul", "instructions": "q 79"}
    with pytest.raises(InvalidRequest, match="ask 1 to 80"):
        judging.request({}, {**questions, "one more": Noul()})


@pytest.mark.parametrize("question", [Choice({}), Score([]), Score(["only"])])
def test_a_question_without_a_choice_is_refused(question: Question) -> None:
    for ask in (lambda: requests.decision(JEV, "s", {"k": question}), lambda: judging.request("s", {"k": question})):
        with pytest.raises(InvalidRequest) as refused:
            ask()
        assert refused.value.fields[0].field == "questions.k"


def test_what_has_no_json_form_is_the_callers_mistake() -> None:
    for state in (float("nan"), {1, 2}, object()):
        with pytest.raises(InvalidRequest, match="no JSON form"):
            requests.decision(JEV, state, {"q": Noul()})
        with pytest.raises(InvalidRequest, match="no JSON form"):
            judging.request(state, {"q": Noul()})
    with pytest.raises(InvalidRequest, match="at least one"):
        requests.completion(OPENAI, Completion([]))
