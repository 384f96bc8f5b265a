"""Every error as `application/problem+json` (RFC 9457; contract.md, Errors), whoever raises it."""

import logging
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from core.errors import FieldProblem, InvalidRequest, JobFailed, MunimentError, NotFound, TooLarge
from core.wording import plain

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
"""Retry-After of a 503 that names none itself."""

_log = logging.getLogger(__name__)


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def problem_response(error: MunimentError) -> Response:
    """The answer for an error, with Retry-After for 429 and 503 and the challenge for 401."""
    headers: dict[str, str] = {}
    if error.status in (429, 503):
        headers["Retry-After"] = str(error.retry_after or RETRY_SECONDS)
    elif error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(error.as_json(), status_code=error.status, headers=headers)


def unexpected_response(error: BaseException, where: str) -> Response:
    """A defect of ours: the class goes to the log with its traceback, nothing of it to the client."""
    _log.error("%s at %s: %s", type(error).__name__, where, error, exc_info=error)
    return problem_response(JobFailed("an unexpected error; it is in the server's log"))


def install(app: FastAPI) -> None:
    """Makes `app` answer each of its own and the framework's errors as a problem."""

    async def ours(_: Request, error: Exception) -> Response:
        return problem_response(cast("MunimentError", error))

    async def frameworks(_: Request, error: Exception) -> Response:
        return _http_problem(cast("HTTPException", error))

    async def validation(_: Request, error: Exception) -> Response:
        return problem_response(_invalid(cast("RequestValidationError", error)))

    app.add_exception_handler(MunimentError, ours)
    app.add_exception_handler(HTTPException, frameworks)
    app.add_exception_handler(RequestValidationError, validation)


def _http_problem(error: HTTPException) -> Response:
    if error.status_code == 404:
        return problem_response(NotFound("no such route"))
    if error.status_code == 413:
        return problem_response(TooLarge(error.detail))
    if error.status_code == 400:
        return problem_response(InvalidRequest(error.detail))
    # What the contract has no slug for keeps its HTTP meaning (RFC 9457 §4.2.1).
    title = HTTPStatus(error.status_code).phrase
    problem = {"type": "about:blank", "title": title, "status": error.status_code, "detail": error.detail}
    return ProblemResponse(problem, status_code=error.status_code, headers=error.headers)


def _invalid(error: RequestValidationError) -> InvalidRequest:
    """FastAPI's own validation (path, query, and bodies it parses itself), each field by its JSON path."""
    fields = [FieldProblem(_field(entry), _message(entry)) for entry in cast("list[dict[str, Any]]", error.errors())]
    return InvalidRequest("; ".join(f"{field.field}: {field.message}" for field in fields), fields=fields)


def _field(entry: dict[str, Any]) -> str:
    place, *path = entry["loc"]
    if not path:
        return str(place)
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name


def _message(entry: dict[str, Any]) -> str:
    message = plain(entry)
    return message[:1].lower() + message[1:]
