"""Each limit of a write, on both sides, with the name of the field that broke it."""

from collections.abc import Callable
from typing import Any

import pytest

from core.errors import InvalidRequest, MunimentError, TooLarge
from core.records.model import (
    BatchRequest,
    ConversationRequest,
    WriteRequest,
    parse_batch,
    parse_conversation,
    parse_write,
)
from tests.fakes.corpus import REFUSED, TEXTS

WRITE: dict[str, Any] = {"text": "x"}
TALK: dict[str, Any] = {"sessionId": "s", "messages": [{"role": "user", "content": "x"}]}


def said(**more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x", **more}]}


def problem(parse: Callable[[object], object], data: object) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as caught:
        parse(data)
    [field] = caught.value.fields
    assert caught.value.detail == f"{field.field}: {field.message}"
    return field.field, field.message


def test_all_fields_of_a_write() -> None:
    request = parse_write(
        {
            "text": "x",
            "id": "A-b-9",
            "source": "mail",
            "at": "2026-03-01T09:30:00+02:00",
            "scope": "session",
            "workspaceId": "/work",
            "sessionId": "s",
        }
    )
    assert request == WriteRequest(
        text="x",
        id="A-b-9",
        source="mail",
        at="2026-03-01T09:30:00+02:00",
        scope="session",
        workspaceId="/work",
        sessionId="s",
    )
    assert parse_write(WRITE).scope == "global"
    assert parse_write({"text": "x", "id": None, "at": None}) == parse_write(WRITE)


def test_a_job_payload_reads_back() -> None:
    batch = parse_batch({"items": [{**WRITE, "sessionId": "s"}, TALK]})
    assert parse_batch(batch.model_dump(by_alias=True, exclude_none=True)) == batch


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_unicode_is_accepted_unchanged(text: str) -> None:
    assert parse_write({"text": text}).text == text
    assert parse_conversation({**TALK, **said(content=text)}).messages[1].content == text


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_bad_text_is_refused_in_every_field(text: str) -> None:
    for name in ("text", "source", "workspaceId", "sessionId", "id", "at", "scope"):
        assert problem(parse_write, {**WRITE, name: text})[0] == name
    for name in ("role", "content", "at"):
        assert problem(parse_conversation, {**TALK, **said(**{name: text})})[0] == f"messages[1].{name}"
    for name in ("source", "workspaceId", "sessionId"):
        assert problem(parse_conversation, {**TALK, name: text})[0] == name
    assert problem(parse_batch, {"items": [WRITE, {**WRITE, "text": text}]})[0] == "items[1].text"


@pytest.mark.parametrize(
    "data",
    [
        {"text": "é" * 2 * 1024 * 1024},  # 4 MiB
        {"text": " "},
        {**WRITE, "id": "a" * 90},
        {**WRITE, "source": "😀" * 200},
        {**WRITE, "source": ""},
        {**WRITE, "source": "two\nlines"},
        {**WRITE, "workspaceId": "书" * 200},
        {**WRITE, "sessionId": "a : b"},
        {**WRITE, "scope": "daily"},
        {**WRITE, "scope": "project", "workspaceId": "w"},
    ],
)
def test_just_within_the_limits(data: dict[str, Any]) -> None:
    parse_write(data)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": 1}, "text"),
        ({"text": None}, "text"),
        ({**WRITE, "id": ""}, "id"),
        ({**WRITE, "id": "a" * 91}, "id"),
        ({**WRITE, "id": "a_b"}, "id"),
        ({**WRITE, "id": "é"}, "id"),
        ({**WRITE, "id": "a\n"}, "id"),
        ({**WRITE, "source": "😀" * 201}, "source"),
        ({**WRITE, "at": "2026-03-01T09:30:00"}, "at"),
        ({**WRITE, "at": 1_770_000_000}, "at"),
        ({**WRITE, "scope": "Global"}, "scope"),
        ({**WRITE, "scope": "project"}, "workspaceId"),
        ({**WRITE, "scope": "session", "workspaceId": "w"}, "sessionId"),
        ({**WRITE, "workspaceId": ""}, "workspaceId"),
        ({**WRITE, "workspaceId": "a" * 201}, "workspaceId"),
        ({**WRITE, "sessionId": "a\tb"}, "sessionId"),
        ({**WRITE, "sessionId": "a\x85"}, "sessionId"),
        ({**WRITE, "session_id": "s"}, "session_id"),
        ({**WRITE, "messages": []}, "messages"),
        ([], "body"),
        (None, "body"),
        ("text", "body"),
    ],
)
def test_what_is_wrong_in_a_write_is_named(data: object, field: str) -> None:
    assert problem(parse_write, data)[0] == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": ["x"]}, "messages[0]"),
        ({"messages": [{"role": "u", "content": "x"}] * 10_001}, "messages"),
        (said(role=""), "messages[1].role"),
        (said(role="a" * 65), "messages[1].role"),
        (said(role="a:b"), "messages[1].role"),
        (said(role="a\u2028b"), "messages[1].role"),
        (said(content="é" * (512 * 1024) + "x"), "messages[1].content"),
        (said(content=None), "messages[1].content"),
        (said(at="2026-03-01"), "messages[1].at"),
        (said(name="x"), "messages[1].name"),
        ({"sessionId": ""}, "sessionId"),
        ({"sessionId": None}, "sessionId"),
        ({"scope": "project"}, "workspaceId"),
        ({"at": "2026-03-01T09:30:00Z"}, "at"),
        ({"text": "x"}, "text"),
    ],
)
def test_what_is_wrong_in_a_conversation_is_named(change: dict[str, Any], field: str) -> None:
    assert problem(parse_conversation, {**TALK, **change})[0] == field
    if field != "body":
        assert problem(parse_batch, {"items": [TALK, {**TALK, **change}]})[0] == f"items[1].{field}"


def test_just_within_the_limits_of_a_conversation() -> None:
    parse_conversation({**TALK, "messages": [{"role": "r" * 64, "content": ""}] * 10_000})
    parse_conversation({**TALK, **said(content="é" * (512 * 1024), role="😀 tool/2")})


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_batch({"items": [{"text": ""}, 5, {**TALK, "x": 1}, {**TALK, **said(role="")}]})
    assert [field.field for field in caught.value.fields] == [
        "items[0].text", "items[1]", "items[2].x", "items[3].messages[1].role",
    ]  # fmt: skip
    assert caught.value.detail.endswith("(and 3 more)")


def test_a_refusal_can_be_sent_whatever_the_field_is_called() -> None:
    assert problem(parse_write, {**WRITE, "\0" + "x" * 99: 1})[0] == "\\x00" + "x" * 79
    assert problem(parse_batch, {"items": [{**WRITE, "\ud83d": 1}]})[0] == "items[0]"
    assert problem(parse_write, {**WRITE, "é": 1})[0] == "é"


def test_a_flood_of_errors_is_bounded() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_batch({"items": [{"text": ""}] * 1_000})
    assert len(caught.value.fields) == 50


@pytest.mark.parametrize("items", [[], [WRITE] * 1_001, "x", None])
def test_a_batch_holds_1_to_1000_items(items: object) -> None:
    assert problem(parse_batch, {"items": items})[0] == "items"


def test_items_become_what_they_are() -> None:
    batch = parse_batch({"items": [WRITE, TALK] * 500})
    assert [type(item) for item in batch.items[:2]] == [WriteRequest, ConversationRequest]
    assert len(batch.items) == 1_000


@pytest.mark.parametrize(
    ("parse", "data", "field"),
    [
        (parse_write, {"text": "é" * 2 * 1024 * 1024 + "x"}, "text"),
        (parse_write, {"text": "x" * (4 * 1024 * 1024 + 1), "id": "wrong_too"}, "text"),
        (parse_conversation, {**TALK, "messages": [{"role": "u", "content": "x" * 1024 * 1024}] * 4}, "messages"),
        (parse_batch, {"items": [WRITE, {"text": "x" * (4 * 1024 * 1024 + 1)}]}, "items[1].text"),
        (
            parse_batch,
            {"items": [{**TALK, "messages": [{"role": "u", "content": "x" * 1024 * 1024}] * 4}]},
            "items[0].messages",
        ),
    ],
)
def test_more_than_a_document_holds_is_413(parse: Callable[[object], object], data: object, field: str) -> None:
    with pytest.raises(TooLarge, match="split it") as caught:
        parse(data)
    assert [problem.field for problem in caught.value.fields] == [field]


def test_messages_of_white_space_fit_however_long() -> None:
    parse_conversation({**TALK, "messages": [{"role": "u", "content": "\n" * 1024 * 1024}] * 10})


def test_messages_tell_what_to_do() -> None:
    assert problem(parse_write, {**WRITE, "source": "é" * 300})[1] == "has 300 characters; at most 200"
    assert (
        problem(parse_write, {**WRITE, "scope": "x"})[1] == "must be one of 'global', 'project', 'session' or 'daily'"
    )
    assert problem(parse_write, {**WRITE, "x": 1})[1] == "is not a field of this request; remove it"
    assert "add Z or one like +02:00" in problem(parse_write, {**WRITE, "at": "2026-03-01T09:30:00"})[1]
    assert problem(parse_batch, {"items": []})[1] == "has 0 entries; send at least 1"


@pytest.mark.parametrize("model", [WriteRequest, ConversationRequest, BatchRequest])
def test_schemas_have_examples_that_are_valid(model: type[WriteRequest | ConversationRequest | BatchRequest]) -> None:
    schema = model.model_json_schema()
    assert schema["additionalProperties"] is False
    for example in schema["examples"]:
        model.model_validate(example)


def test_a_problem_survives_its_job() -> None:
    from core.errors import from_json

    with pytest.raises(MunimentError) as caught:
        parse_batch({"items": [{"text": ""}]})
    again = from_json(caught.value.as_json())
    assert again.as_json() == caught.value.as_json()
