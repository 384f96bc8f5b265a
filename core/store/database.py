"""The pool and the two ways into it: a tenant's transaction, and the system's (relay, operators, migrations)."""

import logging
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.rows import DictRow, dict_row
from psycopg.types.array import ListBinaryDumper
from psycopg_pool import ConnectionPool, PoolTimeout

from core.clock import monotonic
from core.errors import Deadlocked, Unavailable
from core.store.queries import queries

Row = dict[str, Any]

CONNECT_SECONDS = 5
POOL_SECONDS = 10
RECONNECT_SECONDS = 5
DRAIN_SECONDS = 1.0
"""After a drain the next one waits so long: what fails meanwhile is mostly what was in use at the first."""

_log = logging.getLogger(__name__)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
_CANCELLED = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)
"""A time-out of the statement's own: Postgres answers."""


class _WarmPool(ConnectionPool[Connection[DictRow]]):
    """Gives out the connection that came back last: its server process still has plans and pages at hand."""

    def _get_ready_connection(self, timeout: float | None) -> Connection[DictRow] | None:
        self._pool.rotate(1)  # the pool takes from the left what it was given on the right; its lock is held
        return super()._get_ready_connection(timeout)


def as_text(numbers: Iterable[int]) -> str:
    """A list of numbers for a parameter that the statement casts to an array.

    Sent as a list its type would be that of its largest number, and each type be another statement to be planned."""
    return f"{{{','.join(map(str, numbers))}}}"


class Tx:
    """One open transaction. `queries` are called as `tx.rows("name", key=value)`; a name is one of sql/queries."""

    def __init__(self, connection: Connection[DictRow]) -> None:
        self._connection = connection

    def rows(self, name: str, /, **values: object) -> list[Row]:
        return list(getattr(queries(), name)(self._connection, **values))

    def row(self, name: str, /, **values: object) -> Row | None:
        return next(iter(self.rows(name, **values)), None)

    def value(self, name: str, /, **values: object) -> Any:
        """The first column of the first row, or None."""
        row = self.row(name, **values)
        return next(iter(row.values())) if row else None

    def binary(self, name: str, /, **values: object) -> list[Row]:
        """The same in the binary protocol, for rows with many bytes in them: as text they come doubled, as hex."""
        with self._connection.cursor(binary=True) as cursor:
            return cursor.execute(getattr(queries(), name).sql, values).fetchall()

    def run(self, name: str, /, **values: object) -> int:
        """For statements that return nothing (`!` in the query file): how many rows they touched."""
        return int(getattr(queries(), name)(self._connection, **values))


class Database:
    """A pool of one role. Every failure to reach Postgres is `Unavailable`; statements' own errors pass as they are."""

    def __init__(self, dsn: str, *, name: str, size: int = 4, prepare: bool = True) -> None:
        def configure(connection: Connection[DictRow]) -> None:
            # As text, each element of an array is searched for what to quote: half the time of a bulk write.
            connection.adapters.register_dumper(list, ListBinaryDumper)
            if not prepare:
                connection.prepare_threshold = None

        self._pool = _WarmPool(
            dsn,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": f"muniment-{name}",
                "keepalives_idle": 30,
                "keepalives_interval": 10,
                "keepalives_count": 3,
                "tcp_user_timeout": 20_000,
            },
            min_size=1,
            max_size=size,
            max_idle=60,
            timeout=POOL_SECONDS,
            max_lifetime=1800,
            # The pool waits twice as long after each failed try: without this an outage goes on for a third of its length
            # after Postgres is back.
            reconnect_timeout=RECONNECT_SECONDS,
            configure=configure,
            open=False,
            name=f"muniment-{name}",
        )
        self.size = size
        self._name = name
        self._away_since: float | None = None
        self._drained_at = -DRAIN_SECONDS

    def __enter__(self) -> "Database":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close(timeout=5)

    def waiting(self) -> int:
        """Callers that wait for a connection at this moment."""
        return int(self._pool.get_stats().get("requests_waiting", 0))

    @contextmanager
    def _connection(self) -> Generator[Connection[DictRow]]:
        used: Connection[DictRow] | None = None
        try:
            with self._pool.connection() as used:
                yield used
            if self._away_since is not None:
                self._back()
        except _LOST as error:
            if isinstance(error, psycopg.errors.DeadlockDetected):
                raise Deadlocked(f"Postgres: {error}".strip()) from error
            # The pool closes what comes back past its lifetime, so a closed one alone proves no loss.
            if used is not None and used.closed and not isinstance(error, _CANCELLED):
                self._drain()
                self._away(error)
            raise Unavailable(f"Postgres: {type(error).__name__}: {error}".strip()) from error

    def _away(self, error: Exception) -> None:
        """One line an outage, whoever meets it and however often."""
        if self._away_since is None:
            self._away_since = monotonic()
            _log.warning("Postgres is away (%s): %s", self._name, error)

    def _back(self) -> None:
        since, self._away_since = self._away_since, None
        if since is not None:  # two threads may see it come back
            _log.warning("Postgres is back (%s) after %.0f s", self._name, monotonic() - since)

    def _drain(self) -> None:
        """A connection was lost: after a restart of Postgres all are, and each would fail somebody's statement. So all go, at
        once and unasked, since to ask a dead one may take until the network's own time-outs."""
        if monotonic() - self._drained_at >= DRAIN_SECONDS:
            self._drained_at = monotonic()
            self._pool.drain()

    @contextmanager
    def tenant(self, tenant_id: UUID) -> Generator[Tx]:
        """A transaction that sees one tenant: the setting that the policies read is its first statement."""
        with self._connection() as connection, connection.transaction():
            tx = Tx(connection)
            tx.run("set_tenant", tenant=str(tenant_id))
            yield tx

    @contextmanager
    def system(self) -> Generator[Tx]:
        """A transaction without a tenant: relay, operators, migrations. The app role sees no tenant's row in it."""
        with self._connection() as connection, connection.transaction():
            yield Tx(connection)

    @contextmanager
    def direct(self) -> Generator[Tx]:
        """Autocommit: for the server functions that set the tenant themselves, one round trip each."""
        with self._connection() as connection:
            yield Tx(connection)
