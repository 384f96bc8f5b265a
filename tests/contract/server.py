"""A real API process's insides on a real socket, in a thread of the test."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import httpx
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.serve import config
from api.services import Services
from core.ids import uuid7
from core.settings import Settings
from core.tenants.keys import create_key, create_operator_key
from core.tenants.stores import put_store
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase

ALL = ("read", "write", "consolidate", "manage")
NO_REDIS = "redis://127.0.0.1:1/0"


@dataclass
class Api:
    """A running API: its address, the app, and the database behind it."""

    url: str
    app: FastAPI
    settings: Settings
    database: TestDatabase
    loop: asyncio.AbstractEventLoop

    @property
    def services(self) -> Services:
        return self.app.state.services

    def tenant(self) -> UUID:
        with self.database.relay.system() as tx:
            return create_tenant(tx, f"tenant-{uuid7().hex}").id

    def store(self, tenant: UUID, name: str) -> None:
        with self.database.app.tenant(tenant) as tx:
            put_store(tx, tenant, name, None)

    def key(self, tenant: UUID, scopes: tuple[str, ...] = ALL, stores: list[str] | None = None) -> str:
        with self.database.relay.system() as tx:
            return create_key(tx, tenant, "a test's key", scopes, stores)[1]

    def operator_key(self) -> str:
        with self.database.relay.system() as tx:
            return create_operator_key(tx, "a test's operator")[1]

    def client(self, secret: str | None = None) -> httpx.Client:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)


def api_settings(database: TestDatabase, redis_url: str, **more: object) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database.dsn("app"),
            "database_operator_url": database.dsn("relay"),
            "redis_url": redis_url,
            "auth_cache_seconds": 60.0,
            "shutdown_seconds": 5.0,
            **more,
        }
    )


@contextmanager
def running(database: TestDatabase, redis_url: str, **more: object) -> Iterator[Api]:
    """Serves until the block ends; what the server could not do in peace fails the test."""
    settings = api_settings(database, redis_url, **more)
    app = create_app(settings)
    server = uvicorn.Server(config(app, ("127.0.0.1", 0), settings))
    started = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        started.set()
        await task

    def run() -> None:
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, name="test-api")
    thread.start()
    assert started.wait(20)
    try:
        assert server.started
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Api(f"http://127.0.0.1:{port}", app, settings, database, loops[0])
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
