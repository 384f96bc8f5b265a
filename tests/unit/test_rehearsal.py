"""The rehearsal models' rules: always the same, and right where shared words are enough."""

import json

import pytest

from core.models import judging
from core.models.model import Choice, Noul, Score
from workers.embedded.rehearsal import deciding, embedding, writing

STATE = {
    "messages": ["user: Where does the owl live?"],
    "candidates": [
        {"id": "r1", "source": "journal", "text": "The owl lives in the old mill."},
        {"id": "r2", "source": "journal", "text": "Bread rises better near the stove."},
        {"id": "r3", "source": "journal", "text": "The mill was sold in May."},
    ],
}


def noul(instructions: str, state: object = STATE) -> float:
    return deciding.answers(state, {"q": {"type": "noul", "instructions": instructions}})["q"]["noul"]


def test_a_record_that_shares_the_questions_words_is_needed_and_others_are_not() -> None:
    needed = {name: noul(f"Is record {name} needed to answer the newest message?") for name in ("r1", "r2", "r3")}
    assert needed["r1"] > 0.5 > needed["r3"] >= needed["r2"]
    assert all(0 <= chance <= 1 for chance in needed.values())


def test_two_parts_that_a_question_names_are_compared_with_one_another() -> None:
    state = {
        "needs": [{"id": "n1", "need": "where the owl lives"}, {"id": "n2", "need": "how bread rises"}],
        "candidates": STATE["candidates"],
    }
    supplies = {
        pair: noul(f"Does {pair[0]} supply {pair[1]}?", state) for pair in (("r1", "n1"), ("r1", "n2"), ("r2", "n2"))
    }
    assert supplies["r1", "n1"] > 0.5
    assert supplies["r2", "n2"] > 0.5
    assert supplies["r1", "n2"] < 0.5


def test_nothing_is_overtaken_unless_somebody_says_so() -> None:
    asked = "Is what record r1 says no longer current?"
    assert noul(asked) < 0.5
    moved = {**STATE, "messages": ["user: The owl moved out of the old mill, it lives in the barn instead."]}
    assert noul(asked, moved) > 0.5


def test_choices_and_scores_follow_the_words_too() -> None:
    found = deciding.answers(
        "The owl lives in the old mill.",
        {
            "where": {"type": "choice", "criteria": {"mill": "in a mill", "barn": None}},
            "near": {
                "type": "score",
                "instructions": "Is it about an owl in a mill?",
                "criteria": ["no", "a bit", "yes"],
            },
            "far": {"type": "score", "instructions": "Is it about bread?", "criteria": ["no", "a bit", "yes"]},
        },
    )
    assert found["where"]["choice"] == "mill"
    assert sum(found["where"]["probabilities"].values()) == pytest.approx(1)
    assert found["near"]["score"] > 1 > found["far"]["score"]
    assert sum(found["near"]["probabilities"].values()) == pytest.approx(1)


def test_an_unknown_question_is_refused() -> None:
    with pytest.raises(ValueError, match="noul, choice and score"):
        deciding.answers("state", {"q": {"type": "box"}})


def test_the_same_request_has_the_same_answer() -> None:
    questions = {"q": {"type": "noul", "instructions": "Is r1 needed?"}}
    assert deciding.answers(STATE, questions) == deciding.answers(json.loads(json.dumps(STATE)), questions)
    assert embedding.vectors(["an owl"]) == embedding.vectors(["an owl"])


def test_a_prompt_that_no_rule_knows_gets_its_own_words_back() -> None:
    said = writing.reply(writing.Request("", "Where does the owl live, and where did the owl live before?", False))
    assert said == "owl live"
    assert json.loads(writing.reply(writing.Request("", "Where does the owl live?", True)))["rehearsal"] is True


def test_the_writer_stands_in_for_a_judge() -> None:
    questions = {
        "needed": Noul(instructions="Is r1 needed to answer the newest message?"),
        "where": Choice({"mill": "in a mill", "barn": None}),
        "sure": Score(["no", "yes"]),
    }
    asked = judging.request(STATE, questions)
    messages = [{"role": message.role, "content": message.content} for message in asked.messages]
    body = {"messages": messages, "response_format": {"type": "json_object"}}
    found = judging.answers(writing.reply(writing.read(body)), questions)
    assert found["needed"].noul > 0.5  # type: ignore[union-attr]
    assert found["where"].choice == "mill"  # type: ignore[union-attr]


def test_a_reply_is_cut_at_its_limit_between_characters() -> None:
    assert writing.cut("ab", 1) == ("ab", False)
    assert writing.cut("aéééé", 1) == ("aé", True)


def test_texts_about_the_same_are_near_one_another() -> None:
    asked, near, far, empty = embedding.vectors(["the owl's mill", "An owl lives in the old mill.", "Bread rises.", ""])

    def cosine(one: list[float], other: list[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    assert cosine(asked, near) > 0.3 > cosine(asked, far)
    assert cosine(near, near) == pytest.approx(1)
    assert set(empty) == {0.0}
