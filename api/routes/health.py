"""At the root: liveness, readiness with reasons, metrics, and what a problem means (contract.md, Routes)."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from api import pages
from api.openapi import problems
from api.services import Services
from core.errors import MunimentError, NotFound
from core.store.migrate import pending

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness")
async def healthz() -> Response:
    """The process answers; it says nothing of what it needs."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", summary="Readiness", responses={503: {"description": "Not ready; `reasons` says why"}})
def readyz(request: Request) -> Response:
    """Red for Postgres or missing migrations; green with `degraded: ["redis"]` when Redis is down: rows are polled then."""
    services = Services.of(request)
    reasons: list[str] = []
    try:
        missing = pending(services.db)
        if missing:
            reasons.append(f"migrations are missing: {', '.join(missing)}; run `muniment migrate`")
    except MunimentError as error:
        reasons.append(f"postgres: {error.detail}")
    body: dict[str, object] = {"status": "unready", "reasons": reasons} if reasons else {"status": "ready"}
    if not _redis(services):
        body["degraded"] = ["redis"]
    return JSONResponse(body, status_code=503 if reasons else 200)


def _redis(services: Services) -> bool:
    return services.waiter.listening and services.submitter.redis_ok()


@router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """This process's own; the backlog's come from the exporter."""
    services = Services.of(request)
    services.metrics.waiting.set(len(services.waiter))
    services.metrics.redis_up.set(_redis(services))
    return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/problems/{slug}", summary="What a problem means", response_class=PlainTextResponse, responses=problems())
async def problem(slug: str) -> Response:
    """Plain text: what it means and what to do."""
    text = pages.page(slug)
    if text is None:
        raise NotFound(f"there is no problem {slug!r}")
    return PlainTextResponse(text)
