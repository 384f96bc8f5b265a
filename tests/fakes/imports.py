"""An import's world: uploads, runs, and a worker that does in the test's own thread whatever is ready."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from core.archives import service
from core.archives.request import ImportRequest
from core.faults import Faults
from core.ids import uuid7
from core.jobs.kinds import kinds
from core.jobs.model import JobRequest
from core.jobs.service import get as get_job
from core.records.limits import MIB
from core.settings import Settings
from tests.conftest import TestDatabase
from tests.rows import execute
from workers.broker import WakeBroker
from workers.keeper import Keeper
from workers.main import ACTORS
from workers.metrics import WorkerMetrics
from workers.queues import BULK
from workers.runner import Runner
from workers.submit import Submitter


@dataclass
class World:
    """One tenant, and a worker that does in this thread whatever is ready."""

    database: TestDatabase
    tenant: UUID
    settings: Settings
    submitter: Submitter
    broker: WakeBroker
    faults: Faults

    def runner(self) -> Runner:
        db, metrics = self.database.app, WorkerMetrics(CollectorRegistry())
        keeper = Keeper(db, self.settings, role="test", queues=[], done=lambda: 0)
        return Runner(
            db,
            self.broker,
            self.settings,
            keeper,
            metrics,
            kinds=kinds(self.settings),
            actors=ACTORS,
            faults=self.faults,
        )

    def upload(self, data: bytes, *, filename: str | None = None, part: int = 16 * MIB) -> UUID:
        import_id = self.announce(len(data), filename=filename)
        for start in range(0, len(data), part):
            self.append(import_id, start, data[start : start + part])
        return import_id

    def announce(self, size: int, *, limit: int | None = None, **more: Any) -> UUID:
        import_id = uuid7()
        request = ImportRequest(size=size, **more)
        with self.database.app.tenant(self.tenant) as tx:
            service.create(tx, self.tenant, "journal", request, import_id=import_id, max_stored_bytes=limit)
        return import_id

    def append(self, import_id: UUID, offset: int, data: bytes) -> service.Import:
        with self.database.app.tenant(self.tenant) as tx:
            return service.append(tx, self.tenant, import_id, offset, data)

    def act(self, act: Any, import_id: UUID) -> service.Import:
        with self.database.app.tenant(self.tenant) as tx:
            return act(tx, self.tenant, import_id)

    def start(self, import_id: UUID, *states: str) -> UUID:
        job_id = uuid7()
        with self.database.app.tenant(self.tenant) as tx:
            before = service.begin(tx, self.tenant, import_id, job_id, *(states or ("ready",)))
        if before.draining and before.job_id:
            return before.job_id
        request = JobRequest(
            self.tenant, job_id, kinds(self.settings)["import"], BULK, json.dumps({"importId": str(import_id)}),
            store="journal", max_attempts=self.settings.max_attempts,
        )  # fmt: skip
        assert self.submitter.accept(request).result(10).outcome == "accepted"
        return job_id

    def step(self, kind: str | None = None) -> bool:
        """Does the first job that is ready, of this kind if one is named."""
        ready = execute(
            self.database.admin,
            "select tenant_id, job_id, queue from jobs where state = 'queued' and run_at is null"
            " and kind = coalesce(%s, kind) order by seq limit 1",
            kind,
        )
        for tenant_id, job_id, queue in ready:
            self.runner().handle(tenant_id, job_id, queue)
        return bool(ready)

    def drain(self) -> None:
        for _ in range(1_000):
            if not self.step():
                return
        pytest.fail("the jobs do not come to an end")

    def get(self, import_id: UUID) -> dict[str, Any]:
        return self.act(service.get, import_id).as_json()

    def job(self, job_id: UUID) -> dict[str, Any]:
        with self.database.app.tenant(self.tenant) as tx:
            return get_job(tx, self.tenant, job_id).as_json()

    def count(self, table: str) -> int:
        return execute(self.database.admin, f"select count(*) from {table}")[0][0]

    def repeated(self) -> int:
        return execute(self.database.admin, "select count(*) - count(distinct document_id) from documents")[0][0]


def make(database: TestDatabase, redis_url: str, tenant: UUID, faults: str = "", **settings: Any) -> Generator[World]:
    values = {"database_url": database.dsn("app"), "redis_url": redis_url, **settings}
    made = Settings.model_validate(values)
    submitter, broker = Submitter(database.app, redis_url, made), WakeBroker(redis_url)
    submitter.open()
    try:
        yield World(database, tenant, made, submitter, broker, Faults(faults))
    finally:
        submitter.close()
        broker.close()
