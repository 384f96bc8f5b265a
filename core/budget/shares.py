"""In-flight caps that are exact for the fleet: each process holds a share of a cap and enforces it for itself.

A share grows only after Postgres has said so and shrinks here before Postgres is told (sql/functions/ledger.sql,
inflight_rebalance), so at no moment do the shares of living processes add up to more than the cap.
"""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from core.budget.lease import ProcessLease
from core.clock import monotonic
from core.errors import Cancelled, DeadlineExceeded, Unavailable
from core.store.database import Database

REBALANCE_SECONDS = 2.0
ASK_SECONDS = 0.1
"""A process that has callers waiting asks for more at most this often."""
WAIT_SECONDS = 0.25
"""How long a waiting caller sleeps at most before it looks again."""

Key = tuple[str, str]


@dataclass
class _Share:
    """`wanted`: the most that was in flight or waiting since the last rebalance."""

    cap: int
    limit: int = 0
    in_use: int = 0
    waiting: int = 0
    wanted: int = 0


class Shares:
    """One a process, for any thread. `caps`: calls in flight per provider by call class, over the whole fleet."""

    def __init__(self, db: Database, owner: ProcessLease, caps: Mapping[str, int]) -> None:
        self._db = db
        self._owner = owner
        self._caps = dict(caps)
        self._shares: dict[Key, _Share] = {}
        self._changed = threading.Condition()
        self._asking = threading.Lock()
        self._asked_at = 0.0
        owner.every(REBALANCE_SECONDS, self.rebalance)

    def close(self) -> None:
        """Before the lease ends: the shares go back. Raises Unavailable."""
        with self._db.direct() as tx:
            tx.run("return_shares", process=self._owner.process_id)

    @contextmanager
    def slot(
        self,
        provider: str,
        call_class: str,
        deadline: float | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Generator[None]:
        """One call in flight while the block runs: hold it during an attempt, never during a wait between two.

        `deadline` in monotonic seconds: raises DeadlineExceeded when none came free before. Raises Cancelled, and
        Unavailable when this process's lease is lost and Postgres does not renew it."""
        key = (provider, call_class)
        self._enter(key, deadline, cancelled)
        try:
            yield
        finally:
            with self._changed:
                self._shares[key].in_use -= 1
                self._changed.notify()

    def in_flight(self, provider: str, call_class: str) -> int:
        """Calls of this process at this moment."""
        share = self._shares.get((provider, call_class))
        return 0 if share is None else share.in_use

    def _enter(self, key: Key, deadline: float | None, cancelled: Callable[[], bool]) -> None:
        waits = False
        with self._changed:
            share = self._shares.setdefault(key, _Share(self._caps[key[1]]))
        try:
            while True:
                with self._changed:
                    if not waits:
                        share.waiting += 1
                        waits = True
                    share.wanted = max(share.wanted, share.in_use + share.waiting)
                    if share.in_use < share.limit and self._owner.trusted():
                        share.in_use += 1
                        return
                if cancelled():
                    raise Cancelled
                left = WAIT_SECONDS if deadline is None else min(deadline - monotonic(), WAIT_SECONDS)
                if left <= 0:
                    raise DeadlineExceeded(
                        f"no call to {key[0]} could be started in time: all that may run are running"
                    )
                if not self._ask():
                    with self._changed:
                        if share.in_use >= share.limit or not self._owner.trusted():
                            self._changed.wait(left)
        finally:
            with self._changed:
                share.waiting -= waits

    def _ask(self) -> bool:
        """For more, now: unless somebody is asking, or has just asked. Whether it was done."""
        if not self._asking.acquire(blocking=False):
            return False
        try:
            if monotonic() - self._asked_at < ASK_SECONDS:
                return False
            self._asked_at = monotonic()
            if not self._owner.trusted():
                self._owner.renew()
            self._rebalance()
            return True
        except Unavailable:
            if not self._owner.trusted():
                raise
            return False  # what this process holds is still its own: it goes on with that
        finally:
            self._asking.release()

    def rebalance(self) -> None:
        """Called every two seconds: takes what is fair and gives back the rest. Raises Unavailable."""
        with self._asking:
            if self._rebalance():
                self._rebalance()  # it has lowered itself: others may have that now

    def _rebalance(self) -> bool:
        """Whether some share was lowered."""
        with self._changed:
            keys = list(self._shares)
            if not keys:
                return False
            held = {key: self._shares[key].limit for key in keys}
            wanted = {key: max(share.wanted, share.in_use + share.waiting) for key, share in self._shares.items()}
        with self._db.direct() as tx:
            rows = tx.rows(
                "rebalance_shares",
                process=self._owner.process_id,
                providers=[key[0] for key in keys],
                classes=[key[1] for key in keys],
                caps=[self._shares[key].cap for key in keys],
                shares=[held[key] for key in keys],
                wanted=[wanted[key] for key in keys],
            )
        lowered = False
        granted = {(row["provider"], row["call_class"]): row for row in rows}
        with self._changed:
            for key in keys:
                share, row = self._shares[key], granted.get(key)
                if row is None:
                    share.limit = 0
                    continue
                share.limit = row["share"]
                if row["target"] < share.limit:
                    share.limit = max(row["target"], min(share.in_use, share.limit))
                    lowered = lowered or share.limit < row["share"]
                share.wanted = share.in_use + share.waiting
            self._changed.notify_all()
        if not granted:
            self._owner.renew()
        return lowered
