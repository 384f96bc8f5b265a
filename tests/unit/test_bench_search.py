"""The arithmetic of the search benchmarks: data sets into conversations, recall, records of 600 characters, and peers."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from core.records.model import parse_conversation
from core.search.bm25 import rank
from core.search.tokens import tokens
from tests.bench.engines import clustered, mixed, normal
from tests.bench.evidence import Chat, Question, Session, beam, locomo
from tests.bench.peers.lexical import PEERS, LexicalPeer
from tests.bench.report import Bar, missed
from tests.bench.retrieval import DEPTHS, Scored, recall, scored
from tests.bench.rivals import overlap
from tests.bench.sentences import questions, records, sentences

TALK = [
    {
        "sample_id": "talk-1",
        "conversation": {
            "session_10_date_time": "9:05 am on 2 June, 2023",
            "session_10": [{"speaker": "Bo", "dia_id": "D10:1", "text": "", "blip_caption": "a red kite"}],
            "session_2_date_time": "12:30 am on 1 June, 2023",
            "session_2": [
                {"speaker": "Ana", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a boat"},
                {"speaker": "Bo", "dia_id": "D2:2", "text": "I see."},
            ],
            "session_11_date_time": "9:05 am on 3 June, 2023",
            "speaker_a": "Ana",
        },
        "qa": [
            {"question": "What is seen?", "evidence": ["D2:1; D10:1", "D"], "category": 1},
            {"question": "Unknown turn?", "evidence": ["D9:9"], "category": 4},
            {"question": "None?", "evidence": [], "category": 5},
        ],
    }
]
BATCHES = [
    {
        "batch_number": 1,
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-05-2024", "content": "Plan it? ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Kept ->-> 1,2"},
            ],
            [{"role": "user", "id": 2, "content": "More. ->-> 2,N/A"}],
        ],
    }
]
ASKED = {
    "extraction": [{"question": "Which plan?", "source_chat_ids": {"first": [0], "then": {"later": [2, 77]}}}],
    "abstention": [{"question": "Nothing?"}, {"question": "Empty?", "source_chat_ids": []}],
}


def test_locomo_is_read_as_a_session_a_call(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    (chat,) = locomo(tmp_path / "talk.json")
    assert [session.id for session in chat.sessions] == ["talk-1-2", "talk-1-10"]
    body = chat.sessions[0].body()
    assert body["messages"][0] == {
        "role": "Ana",
        "content": "Look! [shared image: a boat]",
        "at": "2023-06-01T00:30:00Z",
    }
    assert chat.sessions[1].body()["messages"][0]["content"] == "[shared image: a red kite]"
    assert len(parse_conversation(body).messages) == 2
    assert chat.questions == [Question("What is seen?", frozenset({"D2:1", "D10:1"}), "1")]


def test_beam_is_read_as_a_batch_a_call(tmp_path: Path) -> None:
    for name in ("2", "10", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chat.json").write_text(json.dumps(BATCHES))
        (tmp_path / name / "probing_questions.json").write_text(json.dumps(ASKED))
    chats = beam(tmp_path)
    assert [(chat.name, chat.half) for chat in chats] == [("beam-1", 1), ("beam-2", 2), ("beam-10", 1)]
    (session,) = chats[0].sessions
    assert [turn.content for turn in session.turns] == ["Plan it?", "Kept ->-> 1,2", "More."]
    assert {message["at"] for message in session.body()["messages"]} == {"2024-03-05T00:00:00Z"}
    assert chats[0].questions == [Question("Which plan?", frozenset({"0", "2"}), "extraction")]


def test_a_turn_is_found_once_any_of_its_chunks_is() -> None:
    chat = Chat("locomo-1", 2)
    turns = {f"r{n}": frozenset({f"t{n // 2}"}) for n in range(60)}  # every turn is in two records
    ranking = [f"r{n}" for n in range(40, 60)] + [f"r{n}" for n in range(40)]
    found = scored(chat, Question("?", frozenset({"t20", "t21", "t7"}), "3"), ranking, turns)
    assert found == Scored("locomo", 2, "3", 3, (2, 2, 2, 3))


def test_locomo_is_averaged_over_questions_and_beam_over_turns() -> None:
    figures = [(1, (1, 1, 1, 1)), (4, (0, 1, 2, 4))]
    for data, expected in (("locomo", [50.0, 62.5, 75.0, 100.0]), ("beam", [20.0, 40.0, 60.0, 100.0])):
        found = [Scored(data, 1, "1", gold, counts) for gold, counts in figures]
        assert [recall(found, depth) for depth in DEPTHS] == pytest.approx(expected)
    assert np.isnan(recall([], 5))


def test_a_control_must_miss_every_bar() -> None:
    good, bad = Bar("a", "a", 1, "≥", 1), Bar("b", "b", 0, "≥", 1)
    assert missed("x", [bad, bad], "so").passed
    assert not missed("x", [bad, good], "so").passed


def test_records_are_600_characters_of_all_sentences(tmp_path: Path) -> None:
    chance = random.Random(1)
    text = " ".join(f"Sentence {n} says {chance.random()}." for n in range(300))
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    chat = locomo(tmp_path / "talk.json")[0]
    chat.sessions.append(Session("more", chat.sessions[0].at, [chat.sessions[0].turns[0]]))
    parts = sentences([chat]) + [part for part in text.split(". ") if part]
    made = records(parts, 25)
    assert {len(record) for record in made} == {600}
    assert made == records(parts, 25)
    assert made != records(parts, 25, seed=1)
    assert sum(f"Sentence {n} says" in " ".join(made) for n in range(300)) > 250  # but for those cut at an end


def test_the_longest_questions_come_first() -> None:
    chat = Chat("locomo-1", 1, questions=[Question("q" * n, frozenset({"t"}), "1") for n in range(1, 101)])
    found = questions([chat], 20)
    assert [len(text) for text in found[:10]] == list(range(100, 90, -1))
    assert len(set(found)) == 20


@pytest.mark.parametrize("kind", PEERS)
def test_a_peer_is_asked_for_the_same_ranking(kind: type[LexicalPeer]) -> None:
    chance = random.Random(3)
    words = [f"word{n}-x" for n in range(200)]
    texts = [" ".join(chance.choices(words, k=chance.randint(5, 40))) for _ in range(300)]
    peer = kind()
    peer.build([tokens(text) for text in texts])
    query = "word3-x word77-x Word150-x unheard-of"
    exact = [int(number) for number, _ in rank(query, [(f"{n:03}", text) for n, text in enumerate(texts)])]
    assert len(set(peer.best(query, 10)) & set(exact[:10])) >= 8  # theirs are rounded
    assert peer.best("nothing at all", 10) == []


def testoverlap_counts_equal_scores_as_equal() -> None:
    scores = np.array([5.0, 4.0, *[3.0] * 12, 1.0])
    assert overlap([0, 1, *range(6, 14)], scores) == 1.0
    assert overlap([0, 1, 14], scores) == pytest.approx(0.2)


def test_made_vectors_have_length_1_and_near_neighbours() -> None:
    base = normal(np.random.default_rng(5).standard_normal((20, 64)))
    near = mixed(base, 200)
    assert np.linalg.norm(near, axis=1) == pytest.approx(np.ones(200), abs=1e-5)
    assert float((near @ base.T).max(axis=1).min()) > 0.5
    one, other = clustered(4, 50, 1), clustered(4, 50, 2)
    assert float((one @ other.T).max(axis=1).min()) > 0.5  # the same clusters
