"""HTTP in front of the two Dramatiqs: enqueue, block for the result in a pool thread, answer.

`router` can join the spine's own application, so that both sides are behind the same server; `create_app` is the same
alone (`uvicorn tests.bench.peers.http_bare:create_app --factory`), with Redis at `BENCH_HTTP_REDIS_URL`.
"""

import os
from typing import Any

from fastapi import APIRouter, FastAPI

from core import ids
from tests.bench.peers import bare, wakeup

RESULT_TIMEOUT_MS = 10_000


def router(redis_url: str) -> APIRouter:
    """POST /bare/noop, /wakeup/noop: through the queue and back. POST /direct/noop: no queue, the zero line."""
    found = APIRouter()
    stock: Any = bare.make_broker(redis_url)
    pushed: Any = wakeup.make_broker(redis_url)
    _, stock_noop = bare.declare(stock)
    _, pushed_noop = bare.declare(pushed)

    def through(actor: Any, backend: Any) -> dict[str, str]:
        message = actor.send("tenant", str(ids.uuid7()))
        return message.get_result(backend=backend, block=True, timeout=RESULT_TIMEOUT_MS)

    @found.post("/bare/noop")
    def bare_noop() -> dict[str, str]:
        return through(stock_noop, stock.get_results_backend())

    @found.post("/wakeup/noop")
    def wakeup_noop() -> dict[str, str]:
        return through(pushed_noop, pushed.get_results_backend())

    @found.post("/direct/noop")
    def direct_noop() -> dict[str, str]:
        return {"id": str(ids.uuid7())}

    return found


def create_app() -> FastAPI:
    app = FastAPI()
    app.include_router(router(os.environ["BENCH_HTTP_REDIS_URL"]))
    return app
