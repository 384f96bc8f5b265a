"""Quotas by what Postgres says is queued and stored."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast
from uuid import UUID

import psycopg
import pytest

from core.errors import QuotaExceeded
from core.ids import uuid7
from core.store.database import Database, Tx
from core.tenants import quotas
from core.tenants.keys import Principal
from core.tenants.quotas import Backlogs
from core.tenants.tenants import Limits
from tests.conftest import TestDatabase

LIMITS = Limits(1, 1000, 1_000_000, None, None)


def who(tenant: UUID, **limits: int) -> Principal:
    return Principal(uuid7(), tenant, frozenset({"write"}), None, replace(LIMITS, **limits))


def queue(database: TestDatabase, tenant: UUID, jobs: int, size: int = 10, finished: bool = False) -> None:
    with psycopg.connect(database.admin, autocommit=True) as admin:
        for _ in range(jobs):
            admin.execute(
                "insert into jobs (tenant_id, job_id, kind, queue, payload_bytes, state, finished_at)"
                " values (%s, %s, 'write', 'write.interactive', %s, %s, case when %s then now() end)",
                (tenant, uuid7(), size, "succeeded" if finished else "queued", finished),
            )


def test_queued_jobs_and_bytes_are_counted(database: TestDatabase, tenant: UUID) -> None:
    queue(database, tenant, 3, size=100)
    queue(database, tenant, 5, size=100, finished=True)
    Backlogs(database.app).check(who(tenant, max_queued_jobs=4, max_queued_bytes=400), 100)
    with pytest.raises(QuotaExceeded, match="3 jobs are queued") as refused:
        Backlogs(database.app).check(who(tenant, max_queued_jobs=3), 1)
    assert refused.value.retry_after
    with pytest.raises(QuotaExceeded, match="300 bytes are queued"):
        Backlogs(database.app).check(who(tenant, max_queued_bytes=400), 101)


def test_what_this_process_accepts_counts_at_once(database: TestDatabase, tenant: UUID) -> None:
    backlogs = Backlogs(database.app)
    limited = who(tenant, max_queued_jobs=2)
    backlogs.check(limited, 1)
    assert backlogs.fresh(limited)
    backlogs.check(limited, 1)
    with pytest.raises(QuotaExceeded):
        backlogs.check(limited, 1)


def test_stored_bytes_are_counted_when_limited(database: TestDatabase, tenant: UUID) -> None:
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute("update stores set stored_bytes = 90 where tenant_id = %s", (tenant,))
    Backlogs(database.app).check(who(tenant), 1000)
    Backlogs(database.app).check(who(tenant, max_stored_bytes=100), 10)
    with pytest.raises(QuotaExceeded, match="90 bytes are stored"):
        Backlogs(database.app).check(who(tenant, max_stored_bytes=100), 11)


def test_a_drained_backlog_is_seen_after_the_refresh(
    database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [1000.0]
    monkeypatch.setattr(quotas, "monotonic", lambda: moment[0])
    backlogs = Backlogs(database.app)
    limited = who(tenant, max_queued_jobs=1)
    queue(database, tenant, 1)
    with pytest.raises(QuotaExceeded):
        backlogs.check(limited, 1)
    with psycopg.connect(database.admin, autocommit=True) as admin:
        admin.execute("update jobs set state = 'succeeded', finished_at = now() where tenant_id = %s", (tenant,))
    with pytest.raises(QuotaExceeded):
        backlogs.check(limited, 1)
    moment[0] += quotas.REFRESH_SECONDS
    assert not backlogs.fresh(limited)
    backlogs.check(limited, 1)


def test_one_tenants_backlog_is_not_anothers(database: TestDatabase, tenant: UUID) -> None:
    queue(database, tenant, 5)
    backlogs = Backlogs(database.app)
    with pytest.raises(QuotaExceeded):
        backlogs.check(who(tenant, max_queued_jobs=5), 1)
    backlogs.check(who(uuid7(), max_queued_jobs=5), 1)


class Slow:
    """A database whose every transaction takes so long by the clock `moment`."""

    def __init__(self, database: TestDatabase, moment: list[float], seconds: float) -> None:
        self._database = database
        self._moment = moment
        self._seconds = seconds
        self.asked = 0

    @contextmanager
    def tenant(self, tenant_id: UUID) -> Iterator[Tx]:
        self.asked += 1
        with self._database.app.tenant(tenant_id) as tx:
            yield tx
        self._moment[0] += self._seconds


@pytest.mark.parametrize(("seconds", "most"), [(0.01, 62), (0.5, 7), (60.0, 2)])
def test_counting_a_long_backlog_never_takes_a_large_share_of_the_time(
    database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    moment = [1000.0]
    monkeypatch.setattr(quotas, "monotonic", lambda: moment[0])
    slow = Slow(database, moment, seconds)
    backlogs = Backlogs(cast("Database", slow))
    until = moment[0] + 61
    while moment[0] < until:
        backlogs.check(who(tenant, max_queued_jobs=1_000_000), 1)
        moment[0] += 0.1
    assert 1 <= slow.asked <= most
