"""Runs the API on its address, and what only operators should reach on a second one when ADMIN_BIND is set."""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.problems import problem_response
from api.protocol import HttpProtocol
from api.services import Services
from core.errors import NotFound
from core.settings import Settings, SettingsError
from core.store.roles import check_app_role

KEEP_ALIVE_SECONDS = 75
"""Above the idle time-outs of common load balancers, so that they close connections first."""
BACKLOG = 2048
LOOP = "asyncio" if sys.platform == "win32" else "uvloop"
_ADMIN = re.compile(r"/(metrics|ops|v1/admin)(/.*)?")
_ALWAYS = re.compile(r"/(healthz|readyz|problems/.*)")


class PathFilter:
    """One app on two addresses: `admin` says which half of it this one is."""

    def __init__(self, app: ASGIApp, *, admin: bool) -> None:
        self.app = app
        self.admin = admin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _ALWAYS.fullmatch(scope["path"]):
            is_admin = _ADMIN.fullmatch(scope["path"]) is not None
            if is_admin != self.admin:
                await problem_response(NotFound("no such route on this address"))(scope, receive, send)
                return
        await self.app(scope, receive, send)


class _Server(uvicorn.Server):
    """Stops with its neighbour, and lets go of whoever waits for a job before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services
        self.failed = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # `_run` handles them, once for all servers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # raised in the midst of a task; uvicorn has logged why
            self.failed = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._services.waiter.release()
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Until SIGTERM or SIGINT; open requests then get `shutdown_seconds`. Raises SettingsError, and Unavailable when Postgres
    cannot be asked whether it binds our role."""
    public, admin = address("BIND", settings.bind), None
    if settings.admin_bind:
        admin = address("ADMIN_BIND", settings.admin_bind)
    app = create_app(settings)
    services: Services = app.state.services
    apps: list[tuple[ASGIApp, tuple[str, int]]] = [(app, public)]
    if admin is not None:
        # The first one runs the lifespan for both, starts first and ends last.
        apps = [(PathFilter(app, admin=False), public), (PathFilter(app, admin=True), admin)]
    services.db.open()
    try:
        check_app_role(services.db)  # as the lifespan will, which can only end in a traceback
    except BaseException:
        services.db.close()
        raise
    servers = [
        _Server(config(part, at, settings, lifespan="on" if n == 0 else "off"), services)
        for n, (part, at) in enumerate(apps)
    ]
    with asyncio.Runner(loop_factory=servers[0].config.get_loop_factory()) as runner:
        runner.run(_run(servers))
    for server in servers:
        if server.failed:
            where = f"{server.config.host}:{server.config.port}"
            raise SettingsError(f"cannot serve on {where} (MUNIMENT_BIND, MUNIMENT_ADMIN_BIND): the log above says why")


def address(name: str, text: str) -> tuple[str, int]:
    """(host, port) of `host:port`, `[v6]:port` or `:port`; SettingsError names the setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"MUNIMENT_{name}: {text!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  `:port` says all addresses


def config(app: ASGIApp, at: tuple[str, int], settings: Settings, *, lifespan: str = "on") -> uvicorn.Config:
    """How `app` is served at (host, port): the loop, the protocol and their limits."""
    return uvicorn.Config(
        app,
        host=at[0],
        port=at[1],
        loop=LOOP,
        http=HttpProtocol,
        ws="none",
        lifespan="on" if lifespan == "on" else "off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # limits go by the key's tenant; forwarded headers are anybody's (failure-cases.md O11)
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.shutdown_seconds),
    )


async def _run(servers: list[_Server]) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit  # a second signal does not wait for anybody
            server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    first, *others = servers
    running = asyncio.create_task(first.serve())
    while not first.started and not running.done():
        await asyncio.sleep(0.01)
    tasks = [running]
    if not first.failed:
        tasks += [asyncio.create_task(server.serve()) for server in others]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if any(server.failed for server in servers):
        stop()
    await asyncio.gather(*tasks)
