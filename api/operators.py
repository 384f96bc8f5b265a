"""What the operators' routes share: their database, and bodies that are read after the key was checked."""

from typing import Annotated, Any, TypeVar

from fastapi import Depends
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from api.bodies import read_body
from api.services import Services
from core.errors import InvalidRequest, Unavailable
from core.records.model import refusal
from core.store.database import Database

Model = TypeVar("Model", bound=BaseModel)


def operator_db(request: Request) -> Database:
    """The pool of muniment_relay, opened by the first operator that comes. Raises Unavailable when there is none."""
    database = Services.of(request).operator_db
    if database is None:
        raise Unavailable("MUNIMENT_DATABASE_OPERATOR_URL is not set: this process serves no /admin")
    database.open()
    return database


OperatorDb = Annotated[Database, Depends(operator_db)]


def json_body(model: type[Model]) -> Any:
    """`body: Annotated[Model, json_body(Model)]`: a dependency, so that nothing is read before the key was checked."""

    def parse(data: object) -> Model:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            raise refusal(error) from None

    async def body(request: Request) -> Model:
        if "idempotency-key" in request.headers:
            raise InvalidRequest.field("Idempotency-Key", "is for a tenant's requests; leave it out here")
        return await read_body(request, parse)

    return Depends(body)
