"""A conversation as requests: days, limits, and ids that never change."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.archives.model import Conversation, Message, Part
from core.archives.parts import parts
from core.records.limits import BODY_BYTES
from core.records.model import parse_conversation
from core.records.packing import pack

DAY = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)


def talk(*messages: Message, at: datetime | None = None, name: str = "c") -> Conversation:
    return Conversation("chatgpt", name, None, at, messages)


def said(content: str = "x", at: datetime | None = None, role: str = "user") -> Message:
    return Message(role, content, at, "m")


def days(found: list[Part]) -> list[tuple[str | None, list[str]]]:
    return [(str(part.day) if part.day else None, [m.content for m in part.messages]) for part in found]


def test_one_part_a_utc_day() -> None:
    late = datetime.fromisoformat("2026-03-03T01:30:00+05:30")  # 2 March, 20:00 UTC
    found = parts(talk(said("a", DAY), said("b", late), said("c", DAY + timedelta(days=1)), said("d", DAY)))
    assert days(found) == [("2026-03-02", ["a", "b", "d"]), ("2026-03-03", ["c"])]
    assert [part.at for part in found] == [DAY, DAY + timedelta(days=1)]
    assert found[0].request() == {
        "messages": [
            {"role": "user", "content": "a", "at": "2026-03-02T08:30:00.000Z"},
            {"role": "user", "content": "b", "at": "2026-03-02T20:00:00.000Z"},
            {"role": "user", "content": "d", "at": "2026-03-02T08:30:00.000Z"},
        ],
        "sessionId": "c",
        "id": found[0].document_id,
        "source": "chatgpt",
    }


def test_a_message_without_a_time_belongs_to_the_day_before_it() -> None:
    later = DAY + timedelta(days=2)
    found = parts(talk(said("a"), said("b", later), said("c"), at=DAY))
    assert days(found) == [("2026-03-02", ["a"]), ("2026-03-04", ["b", "c"])]
    # A part is dated by its source, never by its import: the first message takes the time that placed it.
    assert [[m.at for m in part.messages] for part in found] == [[DAY], [later, None]]


def test_without_any_time_a_part_is_undated() -> None:
    [part] = parts(talk(said("a"), said("b")))
    assert (part.day, part.at, [m.at for m in part.messages]) == (None, None, [None, None])
    assert all("at" not in message for message in part.request()["messages"])  # type: ignore[union-attr]


def test_ids_are_fixed_for_ever() -> None:
    """Another value here would import everything a second time."""
    dated, undated = parts(talk(said(at=DAY)))[0], parts(talk(said()))[0]
    assert dated.document_id == "2efe7c90-6c10-5fc6-8185-0c5b8b7bf2c7"
    assert undated.document_id == "275364bf-0002-5c0f-a519-334a625e9e52"
    assert UUID(dated.document_id).version == 5


def test_ids_tell_conversation_day_and_split_apart() -> None:
    many = [said(str(i), DAY) for i in range(20_001)]
    found = [
        *parts(talk(*many)),
        *parts(talk(said(at=DAY + timedelta(days=1)))),
        *parts(talk(said(at=DAY), name="d")),
        *parts(talk(said())),
    ]
    assert [len(part.messages) for part in found] == [10_000, 10_000, 1, 1, 1, 1]
    assert len({part.document_id for part in found}) == 6
    # A day that has grown keeps the id of its first part.
    assert found[0].document_id == parts(talk(said(at=DAY)))[0].document_id


@pytest.mark.parametrize("unit", ["x", "é", "🍞", "word ", "\n", "\x01", '"'])
def test_huge_contents_are_cut_into_requests_that_are_accepted(unit: str) -> None:
    content = unit * (9 * 1024 * 1024 // len(unit.encode())) + "end"
    found = parts(talk(said("before", DAY), said(content, DAY), said("after", None)))
    messages = [message for part in found for message in part.messages]
    assert "".join(m.content for m in messages) == f"before{content}after"
    assert all(len(m.content.encode()) <= 1024 * 1024 for m in messages)
    assert all(part.at == DAY for part in found)
    for part in found:
        assert len(json.dumps(part.request())) <= BODY_BYTES
        request = parse_conversation(part.request())
        pack(request.messages, request.session_id)


def test_many_small_messages_stay_within_the_packed_limit() -> None:
    found = parts(talk(*[said("word " * 100, DAY) for _ in range(10_000)], name="🍞" * 200))
    assert len(found) > 1
    for part in found:
        request = parse_conversation(part.request())
        pack(request.messages, request.session_id)


@pytest.mark.parametrize(
    ("role", "kept"),
    [
        ("user", "user"),
        ("User Name", "User-Name"),
        ("a:b\nc\u2028d\x85e\x00f", "a-b-c-d-e-f"),
        ("", "unknown"),
        ("r" * 65, "r" * 64),
        ("角色", "角色"),
    ],
)
def test_roles_are_made_valid(role: str, kept: str) -> None:
    [part] = parts(talk(said(role=role)))
    assert parse_conversation(part.request()).messages[0].role == kept


@pytest.mark.parametrize("name", ["ok", "x" * 200, "x" * 201, "", "line\nbreak", "lone \ud800"])
def test_the_session_is_the_source_s_id_where_it_can_be(name: str) -> None:
    [part], [again] = parts(talk(said(), name=name)), parts(talk(said(), name=name))
    assert part == again
    assert (part.session_id == name) == (name in ("ok", "x" * 200))
    parse_conversation(part.request())


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
TIMES = st.none() | st.integers(1, 253402300799).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
MESSAGES = st.builds(Message, TEXTS, TEXTS, TIMES, st.just("m"))


@given(TEXTS, TIMES, st.lists(MESSAGES, min_size=1, max_size=12))
def test_any_conversation_becomes_valid_requests_with_every_message_once(
    name: str, at: datetime | None, messages: list[Message]
) -> None:
    conversation = Conversation("chatgpt", name, None, at, tuple(messages))
    found = parts(conversation)
    assert found == parts(conversation)
    assert len({part.document_id for part in found}) == len(found)
    assert sorted(m.content for part in found for m in part.messages) == sorted(m.content for m in messages)
    for part in found:
        parse_conversation(part.request())
        assert (part.day is None) == (part.at is None)
        assert all(m.at is None or m.at.date() == part.day for m in part.messages)
