"""Embedding profiles as operators write them (contract.md, Store configuration). The profile `builtin` is everybody's."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from core.errors import FieldProblem, InvalidRequest
from core.models.embedding import BUILTIN, Profile
from core.models.profiles import Text, Url, key_env_problems, url_fault
from core.records.model import refusal

MOST_DIMENSIONS = 4_096
Prefix = Annotated[str, Field(max_length=500)]


class EmbeddingForm(BaseModel):
    """An embedding profile as JSON. `builtin` takes nothing else; the others need `url` and `model`."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True,
        json_schema_extra={"examples": [
            {"kind": "ollama", "url": "http://127.0.0.1:11434", "model": "nomic-embed-text:latest",
             "queryPrefix": "search_query: ", "documentPrefix": "search_document: "},
        ]},
    )  # fmt: skip

    kind: Literal["builtin", "ollama", "openai"]
    url: Url | None = None
    model: Text | None = None
    key_env: Text | None = None
    dimensions: Annotated[int, Field(ge=1, le=MOST_DIMENSIONS)] | None = None
    query_prefix: Prefix = ""
    document_prefix: Prefix = ""


def parse_embedding(name: str, data: object, key_envs: Collection[str]) -> Profile:
    """The profile in decoded JSON. Raises InvalidRequest naming each field that is wrong or cannot work."""
    try:
        form = EmbeddingForm.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
    problems = _problems(form) or key_env_problems(form.key_env or "", key_envs)
    if problems:
        raise InvalidRequest(f"{problems[0].field}: {problems[0].message}", fields=problems)
    if form.kind == "builtin":
        return BUILTIN
    return Profile(
        kind=form.kind,
        url=(form.url or "").rstrip("/"),
        model=form.model or "",
        key_env=form.key_env or "",
        dimensions=form.dimensions,
        query_prefix=form.query_prefix,
        document_prefix=form.document_prefix,
        name=name,
    )


def _problems(form: EmbeddingForm) -> list[FieldProblem]:
    if form.kind == "builtin":
        given = sorted(form.model_fields_set - {"kind"})
        return [FieldProblem(to_camel(field), "is not for kind builtin; leave it out") for field in given]
    found = [
        FieldProblem(field, f"is required for kind {form.kind}")
        for field in ("url", "model")
        if getattr(form, field) is None
    ]
    fault = None if form.url is None else url_fault(form.url)
    return [*found, FieldProblem("url", fault)] if fault else found
