"""The API as one FastAPI app: routes under /v1, problems for every error, and what the routes share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from anyio import to_thread
from fastapi import FastAPI

from api import openapi, problems
from api.answers import Waiter
from api.auth import Authenticator
from api.handover import Handover
from api.limits import BodyLimits
from api.metrics import Metrics, Observe
from api.routes import admin, budgets, health, imports, jobs, memories, reads, records, stores
from api.services import DATABASE_CONNECTIONS, OPERATOR_CONNECTIONS, RESERVED_CONNECTIONS, Services
from core.faults import Faults
from core.jobs.kinds import kinds
from core.jobs.model import Kind
from core.models.catalogue import Profiles
from core.settings import Settings
from core.store.database import Database
from core.store.roles import check_app_role
from core.tenants.keys import authenticate
from core.tenants.quotas import Backlogs
from workers.submit import Submitter

DESCRIPTION = """A multi-tenant memory backend for AI agents: conversations kept as raw, dated records, and questions answered
with the records themselves.

Every route below `/v1` needs a key: `Authorization: Bearer mun_…`. What takes time is a job: such a POST answers `202` with
the job, or with the result if `Prefer: wait=N` is sent and the job ends in time. Every error is a problem (RFC 9457) whose
`type` is a page that says what to do."""

ROUTERS = (memories, reads, records, jobs, stores, imports, budgets, admin)


def create_app(
    settings: Settings, *, faults: Faults | None = None, more_kinds: dict[str, Kind] | None = None
) -> FastAPI:
    """The app with its services in `app.state.services`; they are opened and closed with its lifespan.

    `more_kinds` are for benchmarks and tests. Raises SettingsError when a needed setting is missing.
    """
    services = _services(settings, faults or Faults(settings.faults), more_kinds or {})
    app = FastAPI(
        title="Muniment",
        version="1",
        description=DESCRIPTION,
        lifespan=partial(_lifespan, services),
        docs_url=None,
        redoc_url=None,
        responses=openapi.problems(),
        redirect_slashes=False,
        generate_unique_id_function=lambda route: "_".join([*map(str, route.tags), route.name]).rstrip("_"),
    )
    app.state.services = services
    app.state.parameters = {}  # the query parameters of each route, for api/parameters.py
    app.add_middleware(BodyLimits)
    app.add_middleware(Observe, metrics=services.metrics)
    problems.install(app)
    openapi.install(app)
    for module in ROUTERS:
        app.include_router(module.router, prefix="/v1")
    app.include_router(health.router)
    return app


def _services(settings: Settings, faults: Faults, more_kinds: dict[str, Kind]) -> Services:
    size = settings.pool_size or DATABASE_CONNECTIONS
    db = Database(settings.secret("database_url"), name="api", size=size, prepare=settings.prepare)
    operators: Database | None = None
    if dsn := settings.database_operator_url.get_secret_value():
        operators = Database(dsn, name="api-operators", size=OPERATOR_CONNECTIONS, prepare=settings.prepare)
    redis_url = settings.secret("redis_url")
    return Services(
        settings=settings,
        db=db,
        operator_db=operators,
        submitter=Submitter(db, redis_url, settings, faults),
        handover=Handover(),
        waiter=Waiter(db, redis_url),
        authenticator=Authenticator(partial(authenticate, db), settings.auth_cache_seconds),
        backlogs=Backlogs(db),
        profiles=Profiles(db, settings),
        kinds=kinds(settings) | more_kinds,
        metrics=Metrics(),
    )


@asynccontextmanager
async def _lifespan(services: Services, _: FastAPI) -> AsyncGenerator[None]:
    # A thread more than there are connections would only wait for one, and keep the writer's waiting.
    to_thread.current_default_thread_limiter().total_tokens = max(services.db.size - RESERVED_CONNECTIONS, 1)
    services.db.open()  # the operators' pool is opened by the first operator that comes
    await to_thread.run_sync(check_app_role, services.db)
    services.submitter.open()
    await services.waiter.start()
    try:
        yield
    finally:
        await services.waiter.stop()
        await to_thread.run_sync(services.submitter.close)
        services.authenticator.close()
        for pool in filter(None, (services.operator_db, services.db)):
            await to_thread.run_sync(pool.close)
