"""A process's lease: who owns a reservation, a slice and a share, and whether it still lives."""

from collections.abc import Callable
from uuid import UUID

from core.settings import Settings
from core.store.database import Database


class ProcessLease:
    """One row a process, renewed by its own thread between `start` and `stop`; the relay settles what a dead one left."""

    process_id: UUID

    def __init__(self, db: Database, settings: Settings) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def every(self, seconds: float, work: Callable[[], None]) -> None:
        """Also runs `work` on the lease's thread about this often; what it raises is logged."""
        ...

    def trusted(self) -> bool:
        """Whether the lease surely still holds: counted from when its last renewal was started."""
        ...
