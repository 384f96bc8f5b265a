"""The body of memory.read, and what keeps it from being accepted (contract.md, Operations)."""

from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from core.reading.view import VIEW_ITEMS
from core.records.model import Role, ScopeId, refusal
from core.text import size, text_fault

QUESTION_BYTES = 32 * 1024
RECENT_MESSAGES = 50
RECENT_BYTES = 64 * 1024
"""One message of `recent`."""
REVISION_LARGEST = 2**53 - 1


def _question(value: str) -> str:
    if not value:
        raise PydanticCustomError("invalid", "is empty; send at least one character")
    return _bounded(value, QUESTION_BYTES, "32 KiB")


def _content(value: str) -> str:
    return _bounded(value, RECENT_BYTES, "64 KiB")


def _bounded(value: str, limit: int, name: str) -> str:
    fault = text_fault(value)
    if fault is not None:
        raise PydanticCustomError("invalid", "{fault}", {"fault": fault})
    if len(value) * 4 > limit and size(value) > limit:
        raise PydanticCustomError("invalid", "is over {name} of UTF-8; shorten it", {"name": name})
    return value


def _string(description: str, least: int, most: int) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "type": "string",
            "minLength": least,
            "maxLength": most,
            "pattern": r"^[^\u0000]*$",
            "description": description,
        }
    )


Question = Annotated[str, AfterValidator(_question), _string("at most 32 KiB of UTF-8, without NUL", 1, QUESTION_BYTES)]
RecentContent = Annotated[
    str, AfterValidator(_content), _string("at most 64 KiB of UTF-8, without NUL", 0, RECENT_BYTES)
]

Revision = Annotated[int, Field(ge=0, le=REVISION_LARGEST)]
MaxItems = Annotated[int, Field(ge=1, le=VIEW_ITEMS)]


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RecentMessage(_Body):
    """One message of the conversation that the question comes from."""

    role: Role
    content: RecentContent


class ReadScope(_Body):
    """What besides global and daily records may be seen (contract.md, Scope)."""

    workspace_id: ScopeId | None = Field(default=None, alias="workspaceId")
    session_id: ScopeId | None = Field(default=None, alias="sessionId")


class ReadRequest(_Body):
    """memory.read: a question, answered by the records themselves as the store was at `revision`, else now."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "question": "When is the release, and who signs it off?",
                    "recent": [{"role": "user", "content": "Let us talk about the release."}],
                    "scope": {"workspaceId": "shop"},
                    "maxItems": 8,
                }
            ]
        }
    )

    question: Question
    recent: list[RecentMessage] = Field(default_factory=list[RecentMessage], max_length=RECENT_MESSAGES)
    scope: ReadScope | None = None
    revision: Revision | None = None
    max_items: MaxItems | None = Field(default=None, alias="maxItems")
    flush: bool = Field(default=False, json_schema_extra={"enum": [False]})

    @model_validator(mode="after")
    def _flush(self) -> Self:
        if self.flush:
            why = (
                "cannot be combined with revision" if self.revision is not None else "needs consolidation, which is off"
            )
            raise PydanticCustomError("invalid", "{why}", {"why": why, "field": "flush"})
        return self


def parse_read(data: object) -> ReadRequest:
    """The request in decoded JSON. Raises InvalidRequest naming each wrong field."""
    try:
        return ReadRequest.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
