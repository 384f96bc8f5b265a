"""The bodies of the write requests, and what keeps them from being accepted (contract.md, Operations)."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, NoReturn, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import ErrorDetails, PydanticCustomError

from core.errors import FieldProblem, InvalidRequest, MunimentError, TooLarge
from core.records import dates, limits, packing
from core.text import points, size, text_fault
from core.wording import plain

Scope = Literal["global", "project", "session", "daily"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ROLE_STOP = re.compile("[:\n\r\v\f\x85\u2028\u2029]")
_PROBLEMS_SHOWN = 50


def _refuse(why: str, **more: str) -> NoReturn:
    raise PydanticCustomError("invalid", "{why}", {"why": why, **more})


def _too_large(why: str, **more: str) -> NoReturn:
    raise PydanticCustomError("too_large", "{why}", {"why": why, **more})


def _stored(value: str) -> str:
    fault = text_fault(value)
    if fault is not None:
        _refuse(fault)
    return value


def _text(value: str) -> str:
    if not value:
        _refuse("is empty; send at least one character")
    _stored(value)
    if len(value) * 4 > limits.TEXT_BYTES and size(value) > limits.TEXT_BYTES:
        _too_large("is over 4 MiB of UTF-8; split it")
    return value


def _content(value: str) -> str:
    _stored(value)
    if len(value) * 4 > limits.CONTENT_BYTES and size(value) > limits.CONTENT_BYTES:
        _refuse("is over 1 MiB of UTF-8; split the message")
    return value


def _id(value: str) -> str:
    if limits.DOCUMENT_ID.fullmatch(value) is None:
        _refuse("must be 1 to 90 letters, digits or hyphens (A-Z, a-z, 0-9, -)")
    return value


def _source(value: str) -> str:
    if points(value) > limits.SOURCE_POINTS:
        _refuse(f"has {points(value)} characters; at most {limits.SOURCE_POINTS}")
    return _stored(value)


def _scope_id(value: str) -> str:
    if not 1 <= points(value) <= limits.SCOPE_POINTS:
        _refuse(f"has {points(value)} characters; send 1 to {limits.SCOPE_POINTS}")
    if _CONTROL.search(value):
        _refuse("holds a control character; remove it")
    return _stored(value)


def _role(value: str) -> str:
    if not 1 <= points(value) <= limits.ROLE_POINTS:
        _refuse(f"has {points(value)} characters; send 1 to {limits.ROLE_POINTS}")
    if _ROLE_STOP.search(value):
        _refuse("holds a colon or a line break; remove it")
    return _stored(value)


def _instant(value: str) -> str:
    try:
        dates.parse(value)
    except ValueError as error:
        _refuse(str(error))
    return value


def _string(description: str, *, least: int = 1, most: int, **more: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": least, "maxLength": most, "description": description, **more})


_NO_NUL = r"^[^\u0000]*$"
Text = Annotated[
    str, AfterValidator(_text), _string("at most 4 MiB of UTF-8, without NUL", most=limits.TEXT_BYTES, pattern=_NO_NUL)
]
Content = Annotated[
    str,
    AfterValidator(_content),
    _string("at most 1 MiB of UTF-8, without NUL", least=0, most=limits.CONTENT_BYTES, pattern=_NO_NUL),
]
DocumentId = Annotated[
    str,
    AfterValidator(_id),
    _string("must be unused in the store; left out, a new UUIDv7", most=90, pattern="^[A-Za-z0-9-]{1,90}$"),
]
Source = Annotated[
    str,
    AfterValidator(_source),
    _string("where the text comes from", least=0, most=limits.SOURCE_POINTS, pattern=_NO_NUL),
]
ScopeId = Annotated[
    str,
    AfterValidator(_scope_id),
    _string("no control characters", most=limits.SCOPE_POINTS, pattern=r"^[^\u0000-\u001f\u007f-\u009f]*$"),
]
Role = Annotated[
    str,
    AfterValidator(_role),
    _string(
        "who speaks; no colon, no line break",
        most=limits.ROLE_POINTS,
        pattern=r"^[^\u0000:\n\r\u000b\u000c\u0085\u2028\u2029]*$",
    ),
]
Instant = Annotated[
    str,
    AfterValidator(_instant),
    _string("RFC 3339 with an offset from UTC", least=20, most=64, format="date-time"),
]

_SCOPES: JsonDict = {
    "allOf": [
        {
            "if": {"properties": {"scope": {"const": scope}}, "required": ["scope"]},
            "then": {"properties": {needs: {"type": "string"}}, "required": [needs]},
        }
        for scope, needs in (("project", "workspaceId"), ("session", "sessionId"))
    ]
}


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class WriteRequest(_Body):
    """memory.write: one text, kept as it is. `at` is when it happened; left out, when it was accepted."""

    model_config = ConfigDict(
        json_schema_extra={
            **_SCOPES,
            "examples": [
                {
                    "text": "We moved the release to Thursday; Ana signs it off.",
                    "source": "notes/release.md",
                    "at": "2026-03-01T09:30:00Z",
                }
            ],
        }
    )

    text: Text
    id: DocumentId | None = None
    source: Source | None = None
    at: Instant | None = None
    scope: Scope = "global"
    workspace_id: ScopeId | None = Field(default=None, alias="workspaceId")
    session_id: ScopeId | None = Field(default=None, alias="sessionId")

    @model_validator(mode="after")
    def _fits_scope(self) -> Self:
        if self.scope != "global":
            _check_scope(self.scope, self.workspace_id, self.session_id)
        return self


class Message(_Body):
    """One message of a conversation; `content` may be empty."""

    role: Role
    content: Content
    at: Instant | None = None


class ConversationRequest(_Body):
    """memory.writeConversation: messages in order, kept verbatim beside their packed text."""

    model_config = ConfigDict(
        json_schema_extra={
            **_SCOPES,
            "examples": [
                {
                    "sessionId": "planning-7",
                    "messages": [
                        {"role": "user", "content": "When do we release?", "at": "2026-03-01T09:30:00Z"},
                        {"role": "assistant", "content": "On Thursday; Ana signs it off."},
                    ],
                }
            ],
        }
    )

    messages: list[Message] = Field(min_length=1, max_length=limits.MESSAGES)
    session_id: ScopeId = Field(alias="sessionId")
    id: DocumentId | None = None
    source: Source | None = None
    scope: Scope = "global"
    workspace_id: ScopeId | None = Field(default=None, alias="workspaceId")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.scope != "global":
            _check_scope(self.scope, self.workspace_id, self.session_id)
        if packing.may_be_too_large(self.messages, self.session_id):
            try:
                packing.pack(self.messages, self.session_id)
            except TooLarge as error:
                _too_large(error.detail, field="messages")
        return self


def _check_scope(scope: Scope, workspace_id: str | None, session_id: str | None) -> None:
    if scope == "project" and workspace_id is None:
        _refuse("is required when the scope is project", field="workspaceId")
    if scope == "session" and session_id is None:
        _refuse("is required when the scope is session", field="sessionId")


def _kind(item: object) -> str:
    if isinstance(item, ConversationRequest) or (isinstance(item, Mapping) and "messages" in item):
        return "conversation"
    return "write"


Item = Annotated[
    Annotated[WriteRequest, Tag("write")] | Annotated[ConversationRequest, Tag("conversation")], Discriminator(_kind)
]


class BatchRequest(_Body):
    """memories:batch: an item with `messages` is a conversation, any other a text. Each is all or nothing."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {"text": "The office is closed on Monday."},
                        {"sessionId": "s-1", "messages": [{"role": "user", "content": "I moved to Lyon."}]},
                    ]
                }
            ]
        }
    )

    items: list[Item] = Field(min_length=1, max_length=limits.BATCH_ITEMS)


def parse_write(data: object) -> WriteRequest:
    """The request in decoded JSON. Raises InvalidRequest naming each wrong field, or TooLarge (text over 4 MiB)."""
    return _parse(WriteRequest, data)


def parse_conversation(data: object) -> ConversationRequest:
    """As `parse_write`. TooLarge: the packed text is over 4 MiB."""
    return _parse(ConversationRequest, data)


def parse_batch(data: object) -> BatchRequest:
    """As `parse_write`; fields read `items[3].text`. One wrong item refuses the whole request."""
    return _parse(BatchRequest, data)


_Request = TypeVar("_Request", bound=BaseModel)


def _parse(model: type[_Request], data: object) -> _Request:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None


def refusal(error: ValidationError) -> MunimentError:
    """What a failed validation is to the client: TooLarge when that is among the reasons, else InvalidRequest."""
    details = error.errors(include_url=False, include_input=False)
    large = [detail for detail in details if detail["type"] == "too_large"]
    fields = [FieldProblem(_path(detail), plain(detail)) for detail in (large or details)[:_PROBLEMS_SHOWN]]
    others = f" (and {len(details) - 1} more)" if len(details) > 1 and not large else ""
    text = f"{fields[0].field}: {fields[0].message}{others}"
    return TooLarge(text, fields=fields) if large else InvalidRequest(text, fields=fields)


def _path(detail: ErrorDetails) -> str:
    loc = list(detail["loc"])
    if len(loc) > 2 and loc[0] == "items" and loc[2] in ("write", "conversation"):
        del loc[2]  # which of the two an item is, not a field
    field = detail.get("ctx", {}).get("field")
    if field is not None:
        loc.append(cast("str", field))
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        # An unknown field is the client's text: it must not make the refusal unsendable.
        name = part[:80] if part.isprintable() else part[:80].encode("unicode_escape").decode()
        path += f".{name}" if path else name
    return path or "body"
