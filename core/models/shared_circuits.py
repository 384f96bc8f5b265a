"""What Postgres keeps of circuits for the whole fleet: one round trip each (sql/functions/circuits.sql)."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.models.retry_budget import ALWAYS, SHARE
from core.store.database import Database


@dataclass(frozen=True, slots=True)
class KnownBreaker:
    """`open_left_seconds`: until a trial may be made, negative when one is due; None: not open."""

    failures: int
    open_left_seconds: float | None


class SharedCircuits:
    """For any number of threads. Every method raises Unavailable when Postgres cannot be reached."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def breaker_failed(self, circuit: str, threshold: int, open_seconds: float) -> KnownBreaker:
        """Counts an availability failure, and says what the fleet knows then."""
        with self._db.direct() as tx:
            row = tx.row("breaker_failed", circuit=circuit, threshold=threshold, open=open_seconds)
        assert row is not None
        return KnownBreaker(row["failures"], row["open_left"])

    def breaker_recovered(self, circuit: str, *, trial: bool) -> KnownBreaker | None:
        """Forgets the failures. Those of an open circuit only for a trial's answer: else they come back."""
        with self._db.direct() as tx:
            row = tx.row("breaker_recovered", circuit=circuit, trial=trial)
        return None if row is None else KnownBreaker(row["failures"], row["open_left"])

    def breaker_trial(self, circuit: str, holder: str, trial_seconds: float) -> bool:
        """Whether the caller may try: one of the fleet in `trial_seconds`."""
        with self._db.direct() as tx:
            return bool(tx.value("breaker_trial", circuit=circuit, holder=holder, trial=trial_seconds))

    def breakers(self) -> Mapping[str, KnownBreaker]:
        """Those with failures in a row."""
        with self._db.direct() as tx:
            rows = tx.rows("breakers")
        return {row["circuit"]: KnownBreaker(row["failures"], row["open_left"]) for row in rows}

    def add_calls(self, calls: Mapping[str, int]) -> None:
        with self._db.direct() as tx:
            tx.rows("add_calls", circuits=list(calls), calls=list(calls.values()))

    def take_retry(self, circuit: str) -> bool:
        """Takes a retry of the fleet's budget, if there is one."""
        with self._db.direct() as tx:
            return bool(tx.value("take_retry", circuit=circuit, share=1 / SHARE, always=ALWAYS))
