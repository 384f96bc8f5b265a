"""The product's front door for a benchmark: the API and real workers, and one tenant's client of them."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from tests.bench.http_client import Connection, request
from tests.bench.peers import Process
from tests.bench.stage import Stage, body, headers

GROUPS = ("fast", "model", "bulk")
SETTLE_SECONDS = 600.0
IDLE_SECONDS = 2.0
"""The server closes connections that are idle for 5 s."""


class Front:
    """Requests of one tenant, one after the other. Every answer but the expected one is a RuntimeError."""

    def __init__(self, stage: Stage, port: int, tenant: UUID, secret: str, workers: Mapping[str, Process]) -> None:
        self.stage = stage
        self.tenant = tenant
        self.workers = workers
        self._secret = secret
        self._port = port
        self._connection = Connection(port)
        self._used = time.monotonic()

    def close(self) -> None:
        self._connection.close()

    def ask(self, message: bytes) -> tuple[int, bytes, float]:
        """Status, body, latency in ms."""
        if time.monotonic() - self._used > IDLE_SECONDS:
            self._connection.close()
            self._connection = Connection(self._port)
        try:
            return self._connection.ask(message)
        finally:
            self._used = time.monotonic()

    def put(self, store: str, config: Mapping[str, Any] | None = None) -> None:
        """Makes or changes a store. None: made without a configuration, so with all defaults."""
        self._ask("PUT", f"/v1/stores/{store}", config, (200, 201))

    def post(self, path: str, content: Mapping[str, Any], *, wait: int = 60) -> dict[str, Any]:
        """The finished result. `path` is below /v1/stores."""
        return self._ask("POST", f"/v1/stores/{path}", content, (200, 201), Prefer=f"wait={wait}")

    def hand_in(self, path: str, content: bytes) -> None:
        """Accepted, not waited for."""
        self._ask("POST", f"/v1/stores/{path}", content, (202,))

    def search(self, store: str, query: str, **more: Any) -> dict[str, Any]:
        """The answer, which no part of the search may be missing from."""
        found = self.post(f"{store}/searches", {"query": query, **more})
        if "degraded" in found["stats"]:
            raise RuntimeError(f"a search of {store} was degraded: {found['stats']['degraded']}")
        return found

    def search_message(self, store: str, query: str, **more: Any) -> bytes:
        """A search as bytes, for timing with `ask`."""
        given = headers(self._secret, Prefer="wait=60")
        return request("POST", f"/v1/stores/{store}/searches", headers=given, body=body({"query": query, **more}))

    def timed(self, message: bytes) -> float:
        """Milliseconds until the answer."""
        status, answer, milliseconds = self.ask(message)
        if status != 200:
            raise RuntimeError(f"{status}: {answer[:500]!r}")
        return milliseconds

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Until no job is left, those that look after stores behind the writes included: vectors and indexes are complete."""
        began = time.monotonic()
        while unfinished := _unfinished(self.stage):
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"{unfinished} jobs are left after {seconds:.0f} s")
            time.sleep(0.1)
        with self.stage.admin() as admin:
            failed = admin.execute(b"select kind, error from jobs where state <> 'succeeded' limit 1").fetchone()
        if failed is not None:
            raise RuntimeError(f"a job of kind {failed[0]} ended badly: {failed[1]}")

    def rest(self) -> None:
        """After a large load: what Postgres does behind it, on its own time, is done now and not beside what is measured."""
        with self.stage.admin() as admin:
            admin.execute(b"vacuum (analyze)")
            admin.execute(b"checkpoint")

    def store_id(self, store: str) -> UUID:
        with self.stage.admin() as admin:
            row = admin.execute(
                b"select store_id from stores where tenant_id = %s and name = %s", (self.tenant, store)
            ).fetchone()
        assert row is not None
        return row[0]

    def load(self, store: str, batches: Sequence[bytes], count: int) -> float:
        """Seconds for `count` items in prepared bodies of memories:batch, from the first request until all are readable."""
        began = time.monotonic()
        for content in batches:
            self.hand_in(f"{store}/memories:batch", content)
        while left := self.stage.left():
            if time.monotonic() - began > SETTLE_SECONDS:
                raise RuntimeError(f"{left} writes are left after {SETTLE_SECONDS:.0f} s")
            time.sleep(0.05)
        seconds = time.monotonic() - began
        place = (self.tenant, self.store_id(store))
        with self.stage.admin() as admin:
            row = admin.execute(
                b"select count(*) from records where tenant_id = %s and store_id = %s", place
            ).fetchone()
        if row is None or row[0] != count:
            raise RuntimeError(f"{store}: {row} of {count} records are readable")
        return seconds

    def _ask(
        self, method: str, path: str, content: Mapping[str, Any] | bytes | None, expected: tuple[int, ...], **more: str
    ) -> dict[str, Any]:
        sent = content if isinstance(content, bytes) else b"" if content is None else body(content)
        message = request(method, path, headers=headers(self._secret, **more), body=sent)
        status, answer, _ = self.ask(message)
        if status not in expected:
            raise RuntimeError(f"{method} {path}: {status}: {answer[:500]!r}")
        return json.loads(answer)


def batches(texts: Sequence[str], size: int = 500) -> list[bytes]:
    """Bodies of memories:batch."""
    return [
        body({"items": [{"text": text} for text in texts[start : start + size]]})
        for start in range(0, len(texts), size)
    ]


@contextmanager
def front(stage: Stage, tenant: tuple[UUID, str], **settings: str) -> Iterator[Front]:
    """`tenant` and its key; `settings` are those of the worker that searches."""
    own_id, secret = tenant
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        stack.enter_context(stage.relay())
        workers = {
            group: stack.enter_context(stage.worker(group, **(settings if group == "model" else {})))
            for group in GROUPS
        }
        found = Front(stage, port, own_id, secret, workers)
        stack.callback(found.close)
        yield found


def _unfinished(stage: Stage) -> int:
    with stage.admin() as admin:
        row = admin.execute(b"select count(*) from jobs where finished_at is null").fetchone()
    assert row is not None
    return row[0]
