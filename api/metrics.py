"""What an API process says about itself on /metrics, and the middleware that counts (failure-cases.md S39).

Labels are route templates, status classes and outcomes, never a tenant, a store, a job or a path that a client made up.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import unexpected_response
from core.clock import monotonic

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0)
NO_ROUTE = "none"


class Metrics:
    """One registry an app: two apps in one process, as in tests, do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "muniment_http_requests",
            "Requests answered, by route template, status class and outcome (ok, waiting: 202, refused, failed).",
            ("route", "class", "outcome"),
            registry=self.registry,
        )
        self.disconnects = Counter(
            "muniment_http_disconnects",
            "Requests whose client went away before any answer; not among the failures.",
            ("route",),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "muniment_http_request_seconds",
            "Time to the end of the answer, the wait for a job included.",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.waiting = Gauge("muniment_http_waiting", "Requests that wait for their job now.", registry=self.registry)
        self.redis_up = Gauge(
            "muniment_api_redis_up",
            "1 while answers can come through Redis, else 0: rows are polled.",
            registry=self.registry,
        )

    def count(self, route: str, status: int | None, gone: bool, seconds: float) -> None:
        """One request. `status` None: nothing was answered. `gone`: the client went away before an answer."""
        self.seconds.labels(route).observe(seconds)
        if gone:
            self.disconnects.labels(route).inc()
        else:
            status = 500 if status is None else status
            self.requests.labels(route, f"{status // 100}xx", _outcome(status)).inc()


def _outcome(status: int) -> str:
    if status == 202:
        return "waiting"
    return "ok" if status < 400 else "refused" if status < 500 else "failed"


class Observe:
    """Pure ASGI, outermost: counts every request and turns what nobody caught into a problem without internals."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = monotonic()
        status: int | None = None
        gone = False

        async def seen() -> Message:
            nonlocal gone
            message = await receive()
            if message["type"] == "http.disconnect" and status is None:
                gone = True
            return message

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, seen, sent)
        except Exception as error:
            where = f"{scope['method']} {route_template(scope)}"
            response = unexpected_response(error, where)
            if status is None:
                await response(scope, receive, sent)
        finally:
            self.metrics.count(route_template(scope), status, gone, monotonic() - began)


def route_template(scope: Scope) -> str:
    """`/stores/{store}/memories`, not the path (without /v1); `none` when no route matched."""
    return str(getattr(scope.get("route"), "path", NO_ROUTE))
