"""A store's records through the product's own writes, without queue or worker processes."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from core.faults import Faults
from core.ids import uuid7
from core.jobs.model import Claim
from core.records.service import commit_writes
from core.store.database import Database
from core.tenants.stores import store_id_of
from tests.conftest import TestDatabase
from tests.rows import execute


class Memory:
    """Each method commits one claim of jobs in one store."""

    def __init__(
        self, db: Database, tenant: UUID, store: UUID, name: str = "journal", faults: Faults | None = None
    ) -> None:
        self.db = db
        self.tenant = tenant
        self.store = store
        self.name = name
        self.faults = faults or Faults()

    def write(self, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
        """memory.write for each, in one transaction; their results."""
        return self._commit([("write", body) for body in bodies])

    def batch(self, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self._commit([("batch", {"items": items})])[0]

    def erase(self, **selection: Any) -> dict[str, Any]:
        return self._commit([("erase", selection)])[0]

    def commit(self, *jobs: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Jobs of any kind of write in one transaction."""
        return self._commit(jobs)

    def _commit(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        endings = commit_writes(self.db, self.claim(jobs), self.faults).endings
        failed = [ending.error for ending in endings if ending.error is not None]
        assert not failed, failed
        return [json.loads(ending.result or "{}") for ending in endings]

    def claim(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[Claim]:
        """Accepts the jobs and claims them all."""
        requests = [
            {
                "tenant": str(self.tenant), "job": str(uuid7()), "store": self.name, "kind": kind, "queue": "write.bulk",
                "keep": 3600, "attempts": 5, "inflight": 16,
            }
            for kind, _ in jobs
        ]  # fmt: skip
        with self.db.direct() as tx:
            payloads = [json.dumps(body) for _, body in jobs]
            rows = tx.rows("accept_jobs", requests=json.dumps(requests), payloads=payloads, resend=30.0)
            claims = tx.rows(
                "claim_writes", tenant=self.tenant, store=self.store, job=rows[0]["job_id"], owner="test", lease=60,
                limit=500, bytes=2**28,
            )  # fmt: skip
        assert len(claims) == len(jobs)
        return [Claim(**row) for row in claims]


def frozen_journal(database: TestDatabase, tenant: UUID) -> Memory:
    """The tenant's journal with index version 1, whose scores are compared with the literal ranking's."""
    execute(database.admin, 'update stores set config = config || \'{"index": {"version": 1, "lexical": true}}\'')
    with database.app.tenant(tenant) as tx:
        return Memory(database.app, tenant, store_id_of(tx, tenant, "journal"))
