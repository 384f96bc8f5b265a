"""The body that announces an import (contract.md, Routes)."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from core.records.model import refusal
from core.text import text_fault

UPLOAD_BYTES = 2 * 1024**3
"""The largest upload. It is kept in rows of 1 MiB until it has been imported."""
FILENAME_POINTS = 255

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _filename(value: str) -> str:
    why = text_fault(value)
    if not 1 <= len(value) <= FILENAME_POINTS:
        why = f"has {len(value)} characters; send 1 to {FILENAME_POINTS}"
    elif _CONTROL.search(value):
        why = "holds a control character; remove it"
    if why is not None:
        raise PydanticCustomError("invalid", "{why}", {"why": why})
    return value


Filename = Annotated[
    str,
    AfterValidator(_filename),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": FILENAME_POINTS,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        }
    ),
]


class ImportRequest(BaseModel):
    """An upload to come: `size` bytes in all. `format` left out: told by the content."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"filename": "conversations.json", "size": 1_048_576}]},
    )

    size: Annotated[int, Field(ge=1, le=UPLOAD_BYTES)]
    filename: Filename | None = None
    format: Literal["chatgpt"] | None = None


def parse_import(data: object) -> ImportRequest:
    """The request in decoded JSON. Raises InvalidRequest naming each wrong field."""
    try:
        return ImportRequest.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
