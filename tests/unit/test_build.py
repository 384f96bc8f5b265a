import json
from datetime import UTC, datetime
from typing import Any

import pytest

from core.jsontext import canonical, sha256_hex
from core.records.build import NewDocument, build_conversation, build_write
from core.records.model import parse_conversation, parse_write
from core.text import units
from tests.fakes.corpus import TEXTS

ACCEPTED = datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC)
STAMP = "2026-11-30T23:59:59.999Z"
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "When do\nwe release?", "at": "2023-05-20T04:21:00.5+02:00"},
    {"role": "assistant", "content": ""},
]


def write(**body: Any) -> NewDocument:
    return build_write(parse_write({"text": "Hello", **body}), document_id="doc-1", accepted_at=ACCEPTED)


def talk(**body: Any) -> NewDocument:
    data = {"messages": MESSAGES, "sessionId": "s-1", **body}
    return build_conversation(parse_conversation(data), document_id="doc-1", accepted_at=ACCEPTED)


def check(document: NewDocument) -> dict[str, Any]:
    """What holds for every document; its record."""
    record = json.loads(document.canonical)
    blocks = [json.loads(block.canonical) for block in document.blocks]
    for block, own in zip([document, *document.blocks], [record, *blocks], strict=True):
        assert block.canonical == canonical(own)
        assert block.sha256 == sha256_hex(block.canonical)
    whole = record["content"].encode()
    for n, (block, own) in enumerate(zip(document.blocks, blocks, strict=True)):
        assert block.id == own["id"] == f"{document.id}-b{n:04d}"
        assert whole[block.start : block.end].decode() == own["content"] == block.content
        parent = {"id": document.id, "sha256": document.sha256, "start": block.start, "end": block.end}
        assert own["data"] == {**record["data"], "parent": parent}
        assert own == {**record, "id": own["id"], "kind": "memory-record", "state": "active",
                       "content": own["content"], "data": own["data"]}  # fmt: skip
    return record


def test_a_written_text() -> None:
    document = write()
    assert check(document) == {
        "id": "doc-1",
        "kind": "memory-document",
        "title": "Hello",
        "content": "Hello",
        "scope": "global",
        "state": "archived",
        "data": {"eventAt": STAMP, "format": "text"},
        "signals": 1,
        "version": 1,
        "createdAt": STAMP,
        "updatedAt": STAMP,
    }
    [block] = document.blocks
    assert (block.start, block.end, block.messages, document.messages) == (0, 5, (), [])
    assert document.size == len(document.canonical) + len(block.canonical)
    assert (document.date, document.source, document.workspace_id, document.session_id) == (None, None, None, None)


def test_every_optional_field() -> None:
    document = write(
        id="doc-1",
        source='a "quoted" source\n',
        at="2026-03-01T00:30:00.98765+02:00",
        scope="daily",
        workspaceId='w"\\',
        sessionId="s 😀",
    )
    record = check(document)
    assert record["data"] == {
        "eventAt": "2026-02-28T22:30:00.987Z",
        "format": "text",
        "session": "s 😀",
        "source": 'a "quoted" source\n',
    }
    assert (record["date"], record["workspaceId"], record["sessionId"]) == ("2026-02-28", 'w"\\', "s 😀")
    assert (document.date, document.workspace_id, document.session_id) == ("2026-02-28", 'w"\\', "s 😀")
    assert document.event_at == datetime(2026, 2, 28, 22, 30, 0, 987_000, tzinfo=UTC)
    assert document.source == 'a "quoted" source\n'


def test_the_day_of_a_daily_record_is_that_of_acceptance_without_a_time() -> None:
    assert write(scope="daily").date == "2026-11-30"
    assert write().event_at == datetime(2026, 11, 30, 23, 59, 59, 999_000, tzinfo=UTC)


def test_an_empty_source_is_absent() -> None:
    assert "source" not in check(write(source=""))["data"]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_comes_back_as_the_same_bytes(text: str) -> None:
    document = write(text=text)
    assert check(document)["content"].encode() == text.encode()
    assert "".join(block.content for block in document.blocks).encode() == text.encode()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_message_comes_back_verbatim(text: str) -> None:
    document = talk(messages=[{"role": "user", "content": text}])
    check(document)
    assert document.messages[0].content.encode() == text.encode()


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("\n \u3000\n  First line  \nSecond", "First line"),
        ("one\r\ntwo", "one"),
        ("one\u2028two", "one"),
        ("x" * 79 + " y" * 50, "x" * 79),
        ("😀" * 100, "😀" * 80),
        ("a  b\tc", "a  b\tc"),
        (" \n\t\ufeff", "Untitled"),
        ("\x85\x1f", "\x85\x1f"),
    ],
)
def test_titles_of_texts(text: str, title: str) -> None:
    document = write(text=text)
    assert document.title == title
    assert check(document)["title"] == title


def test_a_conversation() -> None:
    document = talk(source="chat")
    record = check(document)
    assert record["title"] == document.title == "Conversation s-1"
    assert record["content"] == ("Conversation s-1 on 2023/05/20 (Sat) 02:21:\nuser: When do we release?\nassistant:")
    assert record["data"] == {
        "eventAt": "2023-05-20T02:21:00.500Z",
        "format": "conversation",
        "session": "s-1",
        "source": "chat",
    }
    assert record["createdAt"] == STAMP
    assert [(message.role, message.content, message.at) for message in document.messages] == [
        ("user", "When do\nwe release?", "2023-05-20T04:21:00.5+02:00"),
        ("assistant", "", None),
    ]
    assert [block.messages for block in document.blocks] == [(0, 1)]
    assert document.size == sum(
        len(text)
        for text in (document.canonical, document.blocks[0].canonical, *("user", MESSAGES[0]["content"], "assistant"))
    )


def test_a_conversation_without_times_happened_when_it_was_accepted() -> None:
    document = talk(messages=MESSAGES[1:])
    assert check(document)["data"]["eventAt"] == STAMP
    assert document.blocks[0].content == "Conversation s-1:\nassistant:"


def test_a_long_conversation_in_chunks() -> None:
    said = [{"role": "user", "content": f"turn {n} " + "word " * 60} for n in range(40)]
    document = talk(messages=said)
    check(document)
    assert len(document.blocks) > 10
    assert "\n\n".join(block.content for block in document.blocks) == json.loads(document.canonical)["content"]
    assert sorted({index for block in document.blocks for index in block.messages}) == list(range(40))


def test_titles_stay_within_a_records_limit() -> None:
    assert units(talk(sessionId="😀" * 200).title) == 299  # 300 would cut a pair


def test_ids_sort_and_stay_within_a_records_limit() -> None:
    data = parse_write({"text": ("a " + "x" * 600) * 6_900})
    document = build_write(data, document_id="d" * 90, accepted_at=ACCEPTED)
    longest = max(document.blocks, key=lambda block: len(block.id))
    assert len(document.blocks) > 10_000
    assert len(longest.id) <= 100


@pytest.mark.parametrize("wrong", ["", "a b", 'a"', "é", "d" * 91])
def test_an_id_that_no_record_may_have(wrong: str) -> None:
    with pytest.raises(ValueError, match="document id"):
        build_write(parse_write({"text": "x"}), document_id=wrong, accepted_at=ACCEPTED)
