"""Terms of version 2, and what of a record is searched."""

from datetime import UTC, datetime

import pytest

from core.records.build import NewDocument, build_conversation, build_write
from core.records.model import ConversationRequest, WriteRequest
from core.search import bm25
from core.search.analysis import analyse, piece, searchable
from core.search.bm25 import idf, score
from core.search.tokens import tokens
from tests.fakes.languages import corpus

MOMENT = datetime(2026, 11, 30, tzinfo=UTC)


def _record(content: str, **data: str) -> dict[str, object]:
    return {"title": "Conversation s-1", "content": content, "data": data}


def _chunk(body: str) -> dict[str, object]:
    return _record(
        f"Conversation s-1 on 2023/05/08 (Mon) 13:56:\n{body}", format="conversation", eventAt="2023-05-08T13:56:00Z"
    )


def test_version_1_is_the_frozen_reference() -> None:
    text = "Re-check the café at 02:21, 東京 ok"
    assert analyse(text, 1) == tokens(text)
    assert searchable(_chunk("a: b"), 1) == bm25.searchable_text(_chunk("a: b"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running", "runs"),
        ("Caroline's paintings", "Caroline painted"),
        ("Café", "cafe"),
        ("Straße", "STRASSE"),
        ("Ａｐｐｌｅ", "apple"),
        ("snake_case", "snake case"),
        ("ключи", "ключ"),
        ("ЁЛКА", "елка"),
        ("κωδικούς", "κωδικός"),
        ("الكعكة", "كعك"),
        ("चाबियाँ", "चाबी"),
        ("\u304b\u3099", "\u304c"),
        ("ｶﾞｽ", "ガス"),
    ],
)
def test_forms_of_a_word_are_one_term(one: str, other: str) -> None:
    assert analyse(one, 2) == analyse(other, 2) != []


def test_stop_words_say_nothing_but_speakers_stay() -> None:
    assert analyse("What is it that I told you about the dog?", 2) == ["i", "told", "you", "dog"]
    assert analyse("что это было", 2) == []


def test_pairs_where_no_spaces_set_words_apart() -> None:
    assert analyse("東京タワー 犬", 2) == ["東京", "京タ", "タワ", "ワー", "犬"]
    assert analyse("한국어를", 2) == ["한국", "국어", "어를"]
    assert analyse("ภาษา", 2) == ["ภา", "าษ", "ษา"]
    assert analyse("Python入門2", 2) == ["python", "入門", "2"]


def test_numbers_and_dates_are_kept() -> None:
    assert analyse("2023-05-08 at 14:56, 3.5 km", 2) == ["2023", "05", "08", "14", "56", "3", "5", "km"]


def test_a_long_word_is_cut() -> None:
    assert [len(term) for term in analyse("x1" * 500, 2)] == [64]


def test_a_conversation_is_searched_without_its_heading_but_with_its_day() -> None:
    assert searchable(_chunk("Ann: hi"), 2) == "Conversation s-1\n8 May 2023 Monday\nAnn: hi"


def test_a_text_is_searched_with_its_title_once() -> None:
    assert searchable({"title": "Plan", "content": "Plan\nfirst", "data": {}}, 2) == "\n\nPlan\nfirst"
    assert searchable({"title": "Plan", "content": "second", "data": {}}, 2) == "Plan\n\nsecond"
    assert searchable({"title": "T", "content": "", "data": {"eventAt": "never"}}, 2) == "T\n\n"


def _pieces(document: NewDocument) -> list[int]:
    return [
        piece({"title": document.title, "content": block.content, "data": {"format": "conversation"}})
        for block in document.blocks
    ]


def test_pieces_of_long_messages_are_known() -> None:
    long = " ".join(f"word{n}" for n in range(300))
    messages = [
        {"role": "user", "content": "short"},
        {"role": "user", "content": long},
        {"role": "assistant", "content": long},
    ]
    request = ConversationRequest.model_validate({"sessionId": "s", "messages": messages})
    found = _pieces(build_conversation(request, document_id="d", accepted_at=MOMENT))
    assert found[0] == 0
    assert found.count(1) == 1
    assert found.count(2) >= 6


def test_blocks_of_a_text_are_no_pieces() -> None:
    request = WriteRequest.model_validate({"text": "word " * 500})
    document = build_write(request, document_id="d", accepted_at=MOMENT)
    records = [
        {"title": document.title, "content": block.content, "data": {"format": "text"}} for block in document.blocks
    ]
    assert [piece(record) for record in records] == [0] * len(document.blocks)


@pytest.mark.parametrize("seed", range(3))
def test_every_script_finds_its_answers_by_words_alone(seed: int) -> None:
    records, questions = corpus(seed)
    analysed = [analyse(text, 2) for text in records]
    average = sum(map(len, analysed)) / len(analysed)
    found = 0
    for question in questions:
        terms = dict.fromkeys(analyse(question.text, 2))
        weights = [(term, idf(len(records), sum(term in own for own in analysed))) for term in terms]
        scores = [score(weights, {t: own.count(t) for t in terms}, len(own), average) for own in analysed]
        best = sorted(range(len(records)), key=lambda n: -scores[n])[:5]
        found += scores[question.answer] > 0 and question.answer in best
    assert len(records) >= 1_000
    assert len(questions) == 70
    assert found / len(questions) >= 0.9
