"""The body of `searches`, and what keeps it from being accepted (contract.md, Routes)."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from core.reading.model import Question, ReadScope, Revision
from core.records.model import refusal
from core.search.service import ROUTES

MOST = 100
K = 20
LAYERED = ("relations", "supersedes")
"""Routes that walk over a consolidated layer."""


def _route(value: str) -> str:
    if value in LAYERED:
        raise PydanticCustomError("invalid", "needs a consolidated layer, which no store has yet; leave it out")
    if value not in ROUTES:
        raise PydanticCustomError("invalid", "must be one of {routes}", {"routes": ", ".join(ROUTES)})
    return value


_Route = Annotated[str, AfterValidator(_route), WithJsonSchema({"type": "string", "enum": list(ROUTES)})]


class SearchRequest(BaseModel):
    """A search: the `k` best records as the store was at `revision`, else now, by the store's routes or by these."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {"query": "Who signs off the release?", "k": 5},
                {"query": "What did Ana say in May 2026?", "scope": {"workspaceId": "shop"}, "explain": True},
            ]
        },
    )

    query: Question
    k: Annotated[int, Field(ge=1, le=MOST)] = K
    routes: Annotated[list[_Route], Field(min_length=1, max_length=len(ROUTES))] | None = None
    scope: ReadScope | None = None
    revision: Revision | None = None
    explain: bool = False


def parse_search(data: object) -> SearchRequest:
    """The request in decoded JSON. Raises InvalidRequest naming each wrong field."""
    try:
        return SearchRequest.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
