"""Unknown query parameters are refused: a misspelt filter must never mean "all" (contract.md; failure-cases.md C1)."""

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request

from core.errors import FieldProblem, InvalidRequest


def refuse_unknown_parameters(request: Request) -> None:
    """Raises InvalidRequest naming each parameter that the route does not have.

    Called by `Require`, which every route below /v1 has: a dependency of its own would cost each request 70 µs."""
    if not request.scope["query_string"]:
        return
    known: dict[str, frozenset[str]] = request.app.state.parameters
    route: APIRoute = request.scope["route"]
    names = known.get(route.unique_id)
    if names is None:
        names = known[route.unique_id] = frozenset(_query_names(route.dependant))
    unknown = [name for name in request.query_params if name not in names]
    if unknown:
        fields = [FieldProblem(name, "is not a parameter of this route; remove it") for name in unknown]
        raise InvalidRequest(f"unknown query parameters: {', '.join(unknown)}", fields=fields)


def _query_names(dependant: Dependant) -> list[str]:
    names = [field.alias for field in dependant.query_params]
    for part in dependant.dependencies:
        names += _query_names(part)
    return names
