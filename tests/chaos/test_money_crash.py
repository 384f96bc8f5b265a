"""Postgres itself is killed: what was reserved stands, and ends of reservations that it lost are written again."""

import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest

from core.budget.lease import ProcessLease
from core.budget.ledger import Ledger
from core.budget.model import Estimate, Spender
from core.errors import Unavailable
from core.settings import Settings
from core.store.database import Database
from core.store.migrate import bootstrap, migrate
from core.tenants.tenants import create_tenant
from tests.conftest import PASSWORDS
from tests.fakes.fleet import until
from tests.rows import execute
from tests.services import short_folder
from workers.embedded.postgres import Postgres

pytestmark = pytest.mark.chaos
NAME = "muniment"
TEN = Estimate(reserve=10, input=3)


@dataclass
class Stage:
    server: Postgres
    tenant: UUID

    @property
    def admin(self) -> str:
        return self.server.superuser_dsn.rpartition("/")[0] + f"/{NAME}"

    def dsn(self, role: str) -> str:
        return self.server.dsn(f"muniment_{role}", PASSWORDS[role], NAME)

    def crash(self) -> None:
        """As a power cut does it, but for what the operating system has already: back on the same port."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()
        self.server.start()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def stage() -> Iterator[Stage]:
    with short_folder() as folder:
        server = Postgres(folder / "postgres", durable=False, port=free_port())
        server.start()
        try:
            bootstrap(server.superuser_dsn, PASSWORDS, NAME)
            migrate(server.dsn("muniment_owner", PASSWORDS["owner"], NAME))
            relay = server.dsn("muniment_relay", PASSWORDS["relay"], NAME)
            with Database(relay, name="test", size=1) as db, db.system() as tx:
                tenant = create_tenant(tx, "one").id
            found = Stage(server, tenant)
            # So that nothing is written to the disk but by a wait for it.
            execute(found.admin, "alter system set wal_writer_delay = '10s'")
            execute(found.admin, "select pg_reload_conf()")
            yield found
        finally:
            server.stop()


def test_a_crash_of_postgres_takes_no_reservation_and_ends_that_it_took_are_written_again(stage: Stage) -> None:
    spender = Spender(stage.tenant, None, None, "judge", "read")
    with Database(stage.dsn("app"), name="test", size=2) as db:
        lease = ProcessLease(db, Settings(lease_seconds=600))
        lease.renew()
        ledger = Ledger(db, lease, Settings(lease_seconds=600))
        certain, lost = (ledger.reserve("jev", TEN, spender) for _ in range(2))
        ledger.settle(certain, 4, 40, 1)
        ledger.make_certain()
        ledger.settle(lost, 7, 70, 1)
        assert states(stage) == {certain.entry_id: ("settled", 4), lost.entry_id: ("settled", 7)}
        stage.crash()
        assert states(stage) == {certain.entry_id: ("settled", 4), lost.entry_id: ("reserved", 0)}

        def written_again() -> bool:
            try:
                ledger.make_certain()
                ledger.repay()
            except Unavailable:
                return False  # its connections are dead
            return states(stage)[lost.entry_id] == ("settled", 7)

        until(written_again, 15)
        ledger.make_certain()
        stage.crash()
        assert states(stage) == {certain.entry_id: ("settled", 4), lost.entry_id: ("settled", 7)}
    assert execute(stage.admin, "select spent, reserved from budget_accounts where provider = 'jev'") == [(11, 0)]


def states(stage: Stage) -> dict[UUID, tuple[str, int]]:
    rows = execute(stage.admin, "select entry_id, state, cost from budget_entries")
    return {entry: (state, cost) for entry, state, cost in rows}
