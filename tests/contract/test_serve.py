"""The API as its own process: two addresses, and a stop that leaves nobody without an answer."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import httpx
import pytest

from api.serve import address
from core.settings import SettingsError, child_environment
from core.tenants.keys import create_key
from tests.cli import environment, muniment
from tests.conftest import TestDatabase
from tests.contract.byhand import until
from tests.rows import execute
from workers.embedded.ports import free_port

PROGRAM = "from api.serve import serve; from core.settings import load; serve(load())"


@contextmanager
def process(database: TestDatabase, redis_url: str, **more: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A serving process and its address; killed at the end unless the test has stopped it."""
    bind = f"127.0.0.1:{free_port()}"
    environment = child_environment(database_url=database.dsn("app"), redis_url=redis_url, bind=bind, **more)
    server = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment)
    try:
        until(lambda: answers(f"http://{bind}"), 30)
        yield server, f"http://{bind}"
    finally:
        server.kill()
        server.wait(10)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def key(database: TestDatabase, tenant: UUID) -> dict[str, str]:
    with database.relay.system() as tx:
        return {"Authorization": f"Bearer {create_key(tx, tenant, 'k', ['read', 'write'])[1]}"}


def test_a_stop_answers_whoever_waits(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    headers = {**key(database, tenant), "Prefer": "wait=60"}
    with process(database, redis_url) as (server, url), ThreadPoolExecutor(1) as pool:
        sent = pool.submit(
            httpx.post, f"{url}/v1/stores/journal/memories", json={"text": "x"}, headers=headers, timeout=30
        )
        until(lambda: execute(database.admin, "select job_id from jobs where tenant_id = %s", tenant))
        server.send_signal(signal.SIGTERM)
        answer = sent.result(20)
        assert answer.status_code == 202
        assert answer.headers["location"].startswith("/v1/jobs/")
        assert server.wait(20) == 0


def test_operators_have_an_address_of_their_own(database: TestDatabase, redis_url: str, tenant: UUID) -> None:
    admin = f"127.0.0.1:{free_port()}"
    with process(database, redis_url, admin_bind=admin) as (server, url):
        until(lambda: answers(f"http://{admin}"))
        mine = key(database, tenant)
        status = {
            (place, path): httpx.get(f"{base}{path}", headers=mine, timeout=10).status_code
            for place, base in (("public", url), ("admin", f"http://{admin}"))
            for path in ("/healthz", "/readyz", "/metrics", "/v1/admin/tenants", "/v1/jobs", "/openapi.json")
        }
        assert status == {
            ("public", "/healthz"): 200, ("public", "/readyz"): 200, ("public", "/metrics"): 404,
            ("public", "/v1/admin/tenants"): 404, ("public", "/v1/jobs"): 200, ("public", "/openapi.json"): 200,
            ("admin", "/healthz"): 200, ("admin", "/readyz"): 200, ("admin", "/metrics"): 200,
            ("admin", "/v1/admin/tenants"): 403, ("admin", "/v1/jobs"): 404, ("admin", "/openapi.json"): 404,
        }  # fmt: skip
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8420", ("127.0.0.1", 8420)),
        (":80", ("0.0.0.0", 80)),
        ("[::1]:1", ("::1", 1)),
        ("localhost", None),
        ("a:b", None),
        ("a:70000", None),
        ("", None),
    ],
)
def test_addresses(text: str, expected: tuple[str, int] | None) -> None:
    if expected is None:
        with pytest.raises(SettingsError, match="MUNIMENT_BIND"):
            address("BIND", text)
    else:
        assert address("BIND", text) == expected


def test_an_api_that_cannot_start_says_why_in_a_line(database: TestDatabase, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        good = {"database_url": database.dsn("app"), "redis_url": redis_url, "bind": f"127.0.0.1:{free_port()}"}
        for wrong, told in (
            ({"database_url": database.dsn("owner")}, "MUNIMENT_DATABASE_URL: the role muniment_owner is not bound"),
            ({"bind": f"127.0.0.1:{port}"}, f"cannot serve on 127.0.0.1:{port} (MUNIMENT_BIND"),
            ({"admin_bind": f"127.0.0.1:{port}"}, f"cannot serve on 127.0.0.1:{port} (MUNIMENT_BIND"),
            ({"redis_url": "localhost:6379"}, "MUNIMENT_REDIS_URL: must begin with redis://"),
        ):
            done = muniment("api", env=environment(**{**good, **wrong}))
            assert done.returncode == 1
            assert done.stderr.splitlines()[-1].startswith(f"A setting is wrong or missing (settings): {told}")
            assert "Traceback" not in done.stderr
