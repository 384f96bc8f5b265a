"""A process's lease: who owns a reservation, a slice and a share, and whether it still lives.

The row is renewed by a thread that does nothing else. When the process dies the row runs out, by the database's clock, and
the relay settles what it left open. A process that was only paused renews the same row and goes on.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from core.clock import monotonic
from core.errors import MunimentError
from core.ids import uuid7
from core.settings import Settings
from core.store.database import Database

_log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
RETRY_SECONDS = 1.0


@dataclass
class _Work:
    seconds: float
    run: Callable[[], None]
    at: float = 0.0


class ProcessLease:
    """Between `start` and `stop` the process may spend. Both once."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self.process_id = uuid7()
        self._db = db
        self._seconds = settings.lease_seconds
        self._trusted_until = 0.0
        self._works: list[_Work] = []
        self._stopping = threading.Event()
        # Apart: no work, however slow, may cost the lease.
        self._threads = [
            threading.Thread(target=self._run, args=(works,), name=name, daemon=True)
            for name, works in (("lease", [_Work(settings.renew_seconds, self.renew)]), ("lease-works", self._works))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Gives the lease back: what is still open is then settled by the relay at its next sweep."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=30)
        self._trusted_until = 0.0
        try:
            with self._db.direct() as tx:
                tx.run("end_process_lease", process=self.process_id)
        except MunimentError as error:
            _log.info("the process's lease runs out by itself: %s", error)

    def alive(self) -> bool:
        """Whether its threads work."""
        return all(thread.is_alive() for thread in self._threads)

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Also runs `work`, one after the other, about this often; what it raises is logged and it is run again."""
        self._works.append(_Work(seconds, work))

    def trusted(self) -> bool:
        """Whether the lease surely still holds: counted from before its last renewal was sent."""
        return monotonic() < self._trusted_until

    def renew(self) -> None:
        """Also called by who was told that the lease is lost. Raises Unavailable."""
        began = monotonic()
        with self._db.direct() as tx:
            tx.run("renew_process_lease", process=self.process_id, lease=self._seconds)
        self._trusted_until = began + self._seconds

    def _run(self, works: list[_Work]) -> None:
        while not self._stopping.is_set():
            for work in works:
                if monotonic() < work.at:
                    continue
                try:
                    work.run()
                    work.at = monotonic() + work.seconds
                except MunimentError as error:
                    _log.warning("the process's lease: %s", error)
                    work.at = monotonic() + min(RETRY_SECONDS, work.seconds)
                except Exception:
                    _log.exception("a thread of the lease met an error and goes on")
                    work.at = monotonic() + work.seconds
            self._stopping.wait(TICK_SECONDS)
