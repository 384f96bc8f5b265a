"""Fixtures of the API's suites: a running API, clients of one tenant, and workers in this process."""

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import UUID

import httpx
import pytest

from tests.conftest import TestDatabase
from tests.contract.server import Api, running
from workers.main import WorkerProcess


@pytest.fixture
def api(database: TestDatabase, redis_url: str) -> Iterator[Api]:
    with running(database, redis_url) as api:
        yield api


@pytest.fixture
def client(api: Api, tenant: UUID) -> Iterator[httpx.Client]:
    """With a key that may do everything in its tenant."""
    with api.client(api.key(tenant)) as client:
        yield client


@pytest.fixture
def workers(api: Api) -> Iterator[None]:
    """The worker groups that finish writes, reads and erasures."""
    with ExitStack() as stack:
        for group in ("fast", "model", "bulk"):
            process = WorkerProcess(api.settings, group)
            process.start()
            stack.callback(process.stop)
        yield
