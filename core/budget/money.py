"""What one process needs to spend money: its lease, the ledger and its shares, on a few connections of their own."""

import logging
from collections.abc import Mapping

from core.budget.lease import ProcessLease
from core.budget.ledger import Ledger
from core.budget.shares import Shares
from core.errors import MunimentError
from core.faults import Faults
from core.settings import Settings
from core.store.database import Database

_log = logging.getLogger(__name__)

CONNECTIONS = 4
"""So that jobs which hold all others never delay a settlement."""


class Money:
    """`start`, then `stop`, each once. `inflight`: the fleet's cap on calls in flight per provider, by call class."""

    def __init__(self, settings: Settings, inflight: Mapping[str, int], faults: Faults | None = None) -> None:
        self.db = Database(settings.secret("database_url"), name="money", size=CONNECTIONS, prepare=settings.prepare)
        self.lease = ProcessLease(self.db, settings)
        self.ledger = Ledger(self.db, self.lease, settings, faults)
        self.shares = Shares(self.db, self.lease, inflight)

    def start(self) -> None:
        """Returns at once; what needs Postgres waits for it."""
        self.db.open()
        self.lease.start()

    def stop(self) -> None:
        """What is still in flight then is settled by the relay at its estimate."""
        self.ledger.close()
        try:
            self.shares.close()
        except MunimentError as error:
            _log.info("this process's shares run out with its lease: %s", error)
        self.lease.stop()
        self.db.close()

    def __enter__(self) -> "Money":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
