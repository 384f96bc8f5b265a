"""The body of an erasure (contract.md, Routes)."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from core.records.model import ScopeId, refusal


class ErasureRequest(BaseModel):
    """Erases every record of a session, of a workspace, or of a session within a workspace."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [{"sessionId": "planning-7"}],
            "anyOf": [
                {"required": ["sessionId"], "properties": {"sessionId": {"type": "string"}}},
                {"required": ["workspaceId"], "properties": {"workspaceId": {"type": "string"}}},
            ],
        },
    )

    session_id: ScopeId | None = Field(default=None, alias="sessionId")
    workspace_id: ScopeId | None = Field(default=None, alias="workspaceId")

    @model_validator(mode="after")
    def _selects(self) -> Self:
        if self.session_id is None and self.workspace_id is None:
            raise PydanticCustomError(
                "invalid",
                "name a session, a workspace, or both; a whole store is erased by deleting it",
                {"field": "sessionId"},
            )
        return self


def parse_erasure(data: object) -> ErasureRequest:
    """The request in decoded JSON. Raises InvalidRequest naming each wrong field."""
    try:
        return ErasureRequest.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
