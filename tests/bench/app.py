"""The product's app, with the benchmark's routes beside its own: both sides behind the same server."""

import os
from typing import Annotated

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.app import create_app
from api.auth import require
from api.bodies import read_body
from api.routes.memories import _write
from api.services import Services
from api.waiting import answer
from core import ids
from core.jobs.model import JobRequest
from core.settings import load
from core.tenants.keys import Principal
from tests.bench.noop import KINDS
from tests.bench.peers.http_bare import router as peers

Writer = Annotated[Principal, require("write")]


def create() -> FastAPI:
    """The factory for uvicorn; settings from the environment."""
    settings = load()
    app = create_app(settings, more_kinds=KINDS)
    router = APIRouter(prefix="/v1", tags=["bench"])

    @router.post("/stores/{store}/noop")
    async def noop(request: Request, store: str, principal: Writer) -> Response:
        """Through the product: job row, queue, worker, fenced commit, answer."""
        services = Services.of(request)
        job = JobRequest(principal.tenant, ids.uuid7(), services.kinds["noop"], "interactive", "{}", store=store)
        return await answer(request, services, job, created_status=200, default_wait=30)

    @router.post("/stores/{store}/counter")
    async def counter(request: Request, store: str, principal: Writer) -> Response:
        services = Services.of(request)
        job = JobRequest(principal.tenant, ids.uuid7(), services.kinds["counter"], "interactive", "{}", store=store)
        return await answer(request, services, job, created_status=200, default_wait=0)

    @router.post("/stores/{store}/validated")
    async def validated(request: Request, store: str, principal: Writer) -> Response:
        """Authenticates and validates the same body as memories, and stores nothing."""
        body = await read_body(request, _write)
        return JSONResponse({"bytes": len(body.payload)}, status_code=202)

    own = len(app.router.routes)
    app.include_router(router)
    app.include_router(peers(os.environ["MUNIMENT_REDIS_URL"]))
    # Looked at first, as the product's own busiest routes are: a route costs more to find the later it comes.
    app.router.routes[:] = [*app.router.routes[own:], *app.router.routes[:own]]
    return app
