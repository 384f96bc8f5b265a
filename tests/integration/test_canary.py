"""A model key is in no log, row, metric, error or export, whatever its provider answers (failure-cases.md H18).

The whole stack runs with a key that is easy to find, against a provider that repeats it in every refusal. Afterwards every
place that anybody can read is searched: the data folder with the servers' own files, the rows of every table, Redis, the
metrics, the operators' page, what clients were told, and what a process says that logs everything.
"""

import json
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from psycopg import sql

from core.budget.model import Spender
from core.errors import MunimentError
from core.models.model import Call, Completion, Message, Noul
from core.models.opening import Models
from core.settings import load
from core.store.database import Database
from tests.fakes.fleet import until
from tests.fakes.provider import Provider, Step, provider
from tests.services import short_folder
from workers import logs
from workers.embedded.firsttenant import first_tenant
from workers.embedded.stack import Stack

CANARY = "canary-3f9a61c27e5b48d0"
KEY_ENV = "MODEL_KEY_OF_THE_TEST"
ANSWERS = [
    Step(status=401, echo=True), Step(status=403, echo=True), Step(status=400, echo=True), Step(status=500, echo=True),
    Step(status=429, echo=True), Step(body=f'{{"error": "Bearer {CANARY}"}}'), Step(body=f"Bearer {CANARY}"),
    Step(status=401, reason=f"No such key {CANARY}"),
    Step(status=302, headers={"Location": f"/v1/models?key={CANARY}"}), Step(headers={"Set-Cookie": f"key={CANARY}"}),
    Step(status=401, body=f'{{"detail": "no such key: {CANARY}"}}', headers={"WWW-Authenticate": f'Bearer realm="{CANARY}"'}),
]  # fmt: skip


@pytest.fixture(scope="module")
def fake() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def stack(fake: Provider) -> Iterator[Stack]:
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_ENV, CANARY)
        profiles = folder / "models.json"
        profiles.write_text(json.dumps(definitions(fake)))
        settings = {"models": str(profiles), "model_key_envs": KEY_ENV, "allow_model_cache": "1"}
        with Stack(folder / "data", durable=False, settings=settings) as running:
            yield running


@pytest.fixture
def most_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What this process logs in the product's own way, at the level of debugging."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    path = tmp_path / "log"
    with path.open("w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        logs.configure("json", logging.DEBUG)
        try:
            yield path
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
            logging.captureWarnings(False)


def definitions(fake: Provider) -> dict[str, Any]:
    keyed = {"keyEnv": KEY_ENV, "grants": "*"}
    return {
        "judge": {"kind": "jev", "model": "jev-1.13.0", "testEndpoint": f"{fake.url}/v1/systemone", **keyed},
        "planner": {"kind": "openai", "model": "gpt-4.1-mini", "baseURL": f"{fake.url}/v1", **keyed},
        "vectors": {"kind": "openai", "url": fake.url, "model": "text-embedding-3-small", **keyed},
    }


def test_h18_the_key_is_nowhere(stack: Stack, fake: Provider, most_said: Path) -> None:
    told = [*clients(stack, fake), *calls(stack, fake)]
    assert any(row.headers.get("authorization") == f"Bearer {CANARY}" for row in fake.log), "the key was sent"
    assert len(told) > 3 * len(ANSWERS)
    places = {
        "what was told": "\n".join(told),
        "a log at its most talkative": most_said.read_text(),
        "rows": "\n".join(rows(stack)),
        "redis": "\n".join(kept(stack.redis_url)),
        **{f"{name} of {process}": text for process, name, text in shown(stack)},
    }
    for place, text in places.items():
        assert text, place
        assert CANARY not in text, f"{place}: …{text[max(0, text.index(CANARY) - 200) :][:300]}"
    found = [path for path in files(stack.data.path) if CANARY.encode() in path.read_bytes()]
    assert not found


def test_the_search_would_find_it(stack: Stack, tmp_path: Path) -> None:
    """The negative control: what a client writes is found in the rows and in the servers' files."""
    told(stack, "POST", "/stores/journal/memories", {"text": "a second canary: 7d1e0b52a9"}, stack.key)
    assert any("7d1e0b52a9" in row for row in rows(stack))
    assert any(b"7d1e0b52a9" in path.read_bytes() for path in files(stack.data.path))


# What happens -------------------------------------------------------------------------------------------------------------


def clients(stack: Stack, fake: Provider) -> Iterator[str]:
    """Everything a client is told while the store's embedder answers so."""
    body: Any = {"version": 1, "embedding": "vectors", "index": {"version": 2, "lexical": True}}
    yield told(stack, "PUT", "/stores/journal", body, stack.key)
    for number, step in enumerate(ANSWERS):
        fake.always(step)
        seen = len(fake.log)
        yield told(stack, "POST", "/stores/journal/memories", {"text": f"The owl of mill {number} sleeps."}, stack.key)
        yield told(
            stack,
            "POST",
            "/stores/journal/searches",
            {"query": f"Which owl sleeps {number}?", "explain": True},
            stack.key,
        )
        yield told(stack, "POST", "/stores/journal/reads", {"question": f"Where is owl {number}?"}, stack.key)
        until(lambda seen=seen: len(fake.log) > seen, 10, "the embedder was asked")
    until(lambda: any(job["kind"] == "embed" for job in jobs(stack)), 10)
    for path in ("/jobs?limit=1000", "/stores/journal", "/stores/journal/export", "/usage", "/budgets"):
        yield told(stack, "GET", path, None, stack.key)
    for path in ("/admin/models", "/admin/budgets", "/admin/queues"):
        yield told(stack, "GET", path, None, stack.operator_key)
    inline = {"version": 1, "judge": {"kind": "jev", "model": "jev-1.13.0", "keyEnv": CANARY[:6]}}
    yield told(stack, "PUT", "/stores/other", inline, stack.key)


def told(stack: Stack, method: str, path: str, body: Any, key: str) -> str:
    headers = {"Authorization": f"Bearer {key}", "Prefer": "wait=20"}
    reply = httpx.request(method, f"{stack.url}/v1{path}", json=body, headers=headers, timeout=30)
    return f"{reply.status_code} {reply.headers} {reply.text}"


def jobs(stack: Stack) -> list[dict[str, Any]]:
    return json.loads(told(stack, "GET", "/jobs?limit=1000", None, stack.key).partition(") ")[2] or "{}").get(
        "items", []
    )


def calls(stack: Stack, fake: Provider) -> list[str]:
    """Decisions and completions of a process that logs everything, recorded replies and all."""
    settings = load(
        {},
        database_url=stack.database_url("app"),
        models=stack.data.path.parent / "models.json",
        model_key_envs=KEY_ENV,
        allow_model_cache=True,
    )
    with Database(stack.database_url("relay"), name="test", size=1) as db, db.system() as tx:
        tenant = first_tenant(tx)
    assert tenant is not None
    heard: list[str] = []
    with Database(stack.database_url("app"), name="test", size=2) as db, Models(settings, db) as models:
        call = Call(Spender(tenant.id, None, None, "judge", "consolidation"), cache="evaluation")
        for step in ANSWERS:
            fake.always(step)
            for ask in (
                lambda: models.gateway.decide("judge", "state", {"q": Noul("?")}, call),
                lambda: models.gateway.complete("planner", Completion([Message("user", "Hello")]), call),
            ):
                try:
                    heard.append(repr(ask()))
                except MunimentError as error:
                    heard.append("".join(traceback.format_exception(error)) + repr(error) + json.dumps(error.as_json()))
        heard.append(repr(vars(models.gateway)) + repr(settings))
    return heard


# Where it could be --------------------------------------------------------------------------------------------------------


def rows(stack: Stack) -> list[str]:
    """Every row of every table, as text."""
    found: list[str] = []
    dsn = stack.postgres.superuser_dsn.rpartition("/")[0] + "/muniment"
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            "select schemaname, tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
        ).fetchall()
        for schema, table in tables:
            query = sql.SQL("select t::text from {} t").format(sql.Identifier(schema, table))
            found += [text + bytes_in(text) for (text,) in connection.execute(query).fetchall()]
    return found


def bytes_in(text: str) -> str:
    """What Postgres shows in hexadecimal."""
    return " ".join(bytes.fromhex(digits).decode("latin-1") for digits in re.findall(r"\\x((?:[0-9a-f]{2})+)", text))


def kept(url: str) -> list[str]:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        return ["redis", *(f"{key!r} {client.dump(key)!r}" for key in client.scan_iter())]


def shown(stack: Stack) -> Iterator[tuple[str, str, str]]:
    """Logs, command lines, metrics and pages of every process."""
    for process in stack.processes:
        yield process.name, "log", process.log.read_text() or "empty"
        yield process.name, "command line", Path(f"/proc/{process.pid}/cmdline").read_text()
        if process.name in ("api", "exporter"):
            yield process.name, "metrics", httpx.get(f"http://{process.address}/metrics", timeout=10).text
    page = httpx.get(f"{stack.url}/ops", headers={"Authorization": f"Bearer {stack.operator_key}"}, timeout=10)
    yield "api", "operators' page", page.text or "empty"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
