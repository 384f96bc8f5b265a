"""Measurements of the database itself, for `muniment doctor`. Whatever goes wrong here is an answer, not a crash."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import psycopg

from core.clock import monotonic
from core.errors import Unavailable
from core.store.database import CONNECT_SECONDS, Database, Tx

HOLD_SECONDS = 0.02
ROUNDS = 5
PREPARED_RUNS = 8
"""psycopg prepares a statement when it runs for the sixth time."""


@contextmanager
def asking(db: Database) -> Generator[Tx]:
    """A transaction in which every error of the database is `Unavailable` with Postgres's own words."""
    try:
        with db.system() as tx:
            yield tx
    except psycopg.Error as error:
        raise Unavailable(f"{type(error).__name__}: {error}".strip()) from error


def reach(dsn: str) -> None:
    """Connects once, without a pool: raises Unavailable at once and with the reason, where a pool would go on trying."""
    try:
        psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.Error as error:
        why = " ".join(str(error).split())
        raise Unavailable(
            f"Postgres cannot be reached: {why} (check MUNIMENT_DATABASE_URL, and that the server runs)"
        ) from error


def prepared_statements_problem(dsn: str) -> str | None:
    """What breaks when two connections prepare statements, as every pool of ours does; None when nothing does.

    A pooler in transaction mode that does not track them gives both the same server connection: the second client
    prepares a name that exists already, or runs one that does not. Raises Unavailable when Postgres cannot be reached."""
    with Database(dsn, name="doctor", size=2) as db:
        try:
            with db.direct() as first, db.direct() as second:
                for tx in (first, second, first):
                    for _ in range(PREPARED_RUNS):
                        tx.value("database_now")
        except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement) as error:
            return str(error).strip()
        except psycopg.Error as error:
            raise Unavailable(f"{type(error).__name__}: {error}".strip()) from error
    return None


@dataclass(frozen=True)
class PoolWait:
    """Medians. `wait`: seconds from asking for a connection to its first answer, while all threads ask; `hold`: seconds
    that each one then keeps it."""

    wait: float
    hold: float

    @property
    def share(self) -> float:
        """How many times as long as it is used a connection is waited for."""
        return self.wait / self.hold


def measure_pool(dsn: str, *, size: int, threads: int) -> PoolWait:
    """Lets `threads` threads use a pool of `size` connections at once, in short transactions, `ROUNDS` times each.

    Waiting in a pooler counts too. Raises Unavailable when connections are refused or do not come in time."""
    waits: list[float] = []
    holds: list[float] = []
    together = threading.Barrier(threads)

    def work() -> None:
        for turn in range(ROUNDS + 1):
            together.wait(timeout=30)
            began = monotonic()
            with asking(db) as tx:
                tx.value("database_now")
                answered = monotonic()
                tx.run("hold_connection", seconds=HOLD_SECONDS)
                ended = monotonic()
            if turn > 0:  # the first one opens the connections
                waits.append(answered - began)
                holds.append(ended - answered)

    with Database(dsn, name="doctor-pool", size=size, prepare=False) as db, ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(_guarded, work, together) for _ in range(threads)]
        for entry in running:
            entry.result()
    return PoolWait(median(waits), median(holds))


def _guarded(work: Callable[[], None], together: threading.Barrier) -> None:
    """One thread's failure lets the others go, and is the one that is told."""
    try:
        work()
    except threading.BrokenBarrierError:
        return
    except BaseException:
        together.abort()
        raise
