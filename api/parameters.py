"""Unknown query parameters are refused: a misspelt filter must never mean "all" (contract.md; failure-cases.md C1)."""

from typing import Any, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from core.errors import FieldProblem, InvalidRequest


def refuse_unknown_parameters(request: Request) -> None:
    """Raises InvalidRequest naming each parameter that the route does not have, and each that is given twice and is no list.

    Called by `Require`, which every route below /v1 has: a dependency of its own would cost each request 70 µs."""
    if not request.scope["query_string"]:
        return
    known: dict[str, dict[str, bool]] = request.app.state.parameters
    route: APIRoute = request.scope["route"]
    takes_many = known.get(route.unique_id)
    if takes_many is None:
        takes_many = known[route.unique_id] = _query_names(route.dependant)
    unknown = [name for name in request.query_params if name not in takes_many]
    if unknown:
        fields = [FieldProblem(name, "is not a parameter of this route; remove it") for name in unknown]
        raise InvalidRequest(f"unknown query parameters: {', '.join(unknown)}", fields=fields)
    given = [name for name, _ in request.query_params.multi_items()]
    for name in request.query_params:
        if not takes_many[name] and given.count(name) > 1:
            raise InvalidRequest.field(name, "is given twice; send it once")


def _query_names(dependant: Dependant) -> dict[str, bool]:
    """The route's query parameters, and whether each may be given more than once."""
    names = {field.alias: _takes_many(field.field_info.annotation) for field in dependant.query_params}
    for part in dependant.dependencies:
        names |= _query_names(part)
    return names


def _takes_many(annotation: Any) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))
