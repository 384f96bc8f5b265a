"""The ledger: reserve → call → settle, per attempt, exact for the fleet (architecture.md §5).

Every step is one server function and may be repeated: it goes by the entry's id. Threads of a process share round trips
(core/budget/combining.py), and the account's row is never locked while the disk writes (sql/functions/ledger.sql).
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from core.budget.caps import write_caps
from core.budget.combining import Combined, Combiner
from core.budget.lease import ProcessLease
from core.budget.model import CURRENCIES, Estimate, Reservation, Spender, units
from core.clock import monotonic
from core.errors import BudgetSpent, Deadlocked, MunimentError, Unavailable
from core.faults import Faults
from core.ids import uuid7
from core.settings import Settings
from core.store.database import Database, Tx

_log = logging.getLogger(__name__)

BATCH = 64
COUNTS = 10_000
"""Unpaid calls that wait to be written; more are dropped while Postgres is away."""
COUNT_BATCH = 500
CERTAIN_BATCH = 1_000
COUNT_SECONDS = 0.5
REPAY_SECONDS = 1.0
POISON_SECONDS = 60.0
"""An end that Postgres refuses for what is in it is tried again so seldom."""
CERTAIN_SECONDS = 1.0
DOUBT = timedelta(seconds=90)
"""A reservation that was asked for when the connection broke may still appear until its statement times out (60 s)."""
SLICE_IDLE_SECONDS = 10.0
TRIES = 3


@dataclass
class _Reserve(Combined):
    reservation: Reservation
    reply_seconds: float
    outcome: str = ""
    reads_only: bool = False


@dataclass
class _Finish(Combined):
    """`state`: settled, released or estimated. `doubtful_until`: an unknown entry may still appear; monotonic seconds."""

    reservation: Reservation
    state: str
    outcome: str
    cost: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    doubtful_until: float = 0.0
    again_at: float = field(default=0.0)


@dataclass(frozen=True)
class _Count:
    provider: str
    spender: Spender
    outcome: str
    input_tokens: int
    output_tokens: int


_Step = TypeVar("_Step", bound=Combined)


class Ledger:
    """One a process, for any thread. `owner` must be started: reservations carry its id."""

    def __init__(self, db: Database, owner: ProcessLease, settings: Settings, faults: Faults | None = None) -> None:
        self._db = db
        self._owner = owner
        self._caps = settings.budgets
        self._part = settings.budget_slice
        self._faults = faults or Faults()
        self._configured = not self._caps
        # Apart, so that no end waits for the disk.
        self._reserving = {provider: self._combiner(self._reserve_all, provider) for provider in CURRENCIES}
        self._finishing = {provider: self._combiner(self._finish_all, provider) for provider in CURRENCIES}
        self._owed: deque[_Finish] = deque()
        self._ended: deque[_Finish] = deque()
        self._counts: deque[tuple[object, _Count]] = deque()
        self._background = threading.Lock()
        for seconds, work in (
            (REPAY_SECONDS, self.repay), (CERTAIN_SECONDS, self.make_certain), (COUNT_SECONDS, self._write_counts),
        ):  # fmt: skip
            owner.every(seconds, work)
        if self._part:
            owner.every(SLICE_IDLE_SECONDS, lambda: self._return_slices(SLICE_IDLE_SECONDS))

    def close(self) -> None:
        """Before the lease ends: writes what waits, as far as Postgres can be reached."""
        try:
            self.make_certain()
            self.repay()
            self._write_counts()
            if self._part:
                self._return_slices(0.0)
        except MunimentError as error:
            _log.warning("the ledger could not be closed in order; the relay settles the rest: %s", error)

    def owed(self) -> int:
        """Ends of reservations that could not be written yet."""
        return len(self._owed)

    # -- what callers do ------------------------------------------------------------------------------------------------

    def reserve(self, provider: str, estimate: Estimate, spender: Spender, reply_seconds: float = 0.0) -> Reservation:
        """Sets money aside, durably, before the attempt is sent. For `reply_seconds` from now its reply may come: until then
        the relay leaves it alone, also when this process seems to be dead.

        Raises BudgetSpent (402; `cap` names the cap that is used up, `reads_only` when its last tenth is left to reads),
        Unavailable when Postgres cannot be reached: then nothing may be sent. ValueError: the provider has no account."""
        if provider not in self._reserving:
            raise ValueError(f"{provider!r} has no account")
        self._faults.hit("budget.reserve")
        step = _Reserve(Reservation(uuid7(), provider, spender, estimate), reply_seconds)
        try:
            self._reserving[provider].do(step)
        except Exception:
            # It may have been made all the same. Nothing is sent, so it costs nothing.
            doubt = monotonic() + DOUBT.total_seconds()
            self._owed.append(_Finish(step.reservation, "released", "not-sent", doubtful_until=doubt))
            raise
        if step.outcome != "reserved":
            raise _refusal(step)
        self._faults.hit("budget.reserved")
        return step.reservation

    def settle(
        self, reservation: Reservation, cost: int, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        """The meter's price, also above the reservation. `outcome`: "ok", or how a metered call failed ("unparsable", …).

        Returns when it is written, which is on disk before anything that is committed later; when Postgres is away, or
        crashes before that, it is written again in the background. Never raises for money."""
        self._finish(_Finish(reservation, "settled", outcome, cost, input_tokens, output_tokens))

    def release(self, reservation: Reservation, outcome: str = "refused") -> None:
        """It cost nothing: never connected, or refused with a non-2xx status. As `settle` else."""
        self._finish(_Finish(reservation, "released", outcome))

    def settle_at_estimate(self, reservation: Reservation, outcome: str) -> None:
        """It may have been billed and nobody knows: stands at its input estimate. As `settle` else."""
        self._finish(_Finish(reservation, "estimated", outcome))

    def count(
        self, provider: str, spender: Spender, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        """A call that costs nothing (unpaid provider; outcome "cached": replayed). Written soon, without waiting."""
        if len(self._counts) >= COUNTS:
            _log.warning("an unpaid call of %s is not counted: Postgres has been away for too long", provider)
            return
        self._counts.append((uuid7(), _Count(provider, spender, outcome, input_tokens, output_tokens)))

    def _finish(self, step: _Finish) -> None:
        if self._faults.hit("budget.settle"):
            return
        try:
            self._finishing[step.reservation.provider].do(step)
        except Exception as error:
            # Also for what another's step in the batch did wrong.
            _log.warning("the end of a reservation is written later: %s", error)
            self._owe(step)
        self._faults.hit("budget.settled")

    # -- batches --------------------------------------------------------------------------------------------------------

    def _combiner(self, run: Callable[[Tx, str, Sequence[_Step]], object], provider: str) -> Combiner[_Step]:
        def batch(steps: Sequence[_Step]) -> None:
            for attempt in range(1, TRIES + 1):
                try:
                    with self._db.direct() as tx:
                        run(tx, provider, steps)
                    return
                except Deadlocked:
                    if attempt == TRIES:
                        raise

        return Combiner(batch, BATCH)

    def _configure(self, tx: Tx) -> None:
        """Before the first money is spent: the configured caps hold from the start."""
        if self._configured:
            return
        write_caps(tx, self._caps)
        self._configured = True

    def _reserve_all(self, tx: Tx, provider: str, steps: Sequence[_Reserve]) -> None:
        self._configure(tx)
        for last in (False, True):
            rows = tx.rows(
                "budget_reserve",
                owner=self._owner.process_id,
                provider=provider,
                part=self._part,
                entries=[step.reservation.entry_id for step in steps],
                tenants=[step.reservation.spender.tenant_id for step in steps],
                stores=[step.reservation.spender.store_id for step in steps],
                jobs=[step.reservation.spender.job_id for step in steps],
                stages=[step.reservation.spender.stage for step in steps],
                classes=[step.reservation.spender.call_class for step in steps],
                reserves=[step.reservation.estimate.reserve for step in steps],
                inputs=[step.reservation.estimate.input for step in steps],
                replies=[step.reply_seconds for step in steps],
            )
            by_id = {row["entry_id"]: row for row in rows}
            for step in steps:
                row = by_id[step.reservation.entry_id]
                step.outcome, step.reads_only = row["outcome"], row["reads_only"]
            if last or steps[0].outcome != "lease-lost":
                break
            _log.warning("this process was away for longer than its lease; it renews it and goes on")
            self._owner.renew()
        if any(step.outcome == "reserved" for step in steps):
            tx.value("wait_for_disk")

    def _finish_all(self, tx: Tx, provider: str, steps: Sequence[_Finish]) -> list[str]:
        rows = tx.rows(
            "budget_finish",
            provider=provider,
            sliced=self._part > 0,
            entries=[step.reservation.entry_id for step in steps],
            tenants=[step.reservation.spender.tenant_id for step in steps],
            states=[step.state for step in steps],
            outcomes=[step.outcome for step in steps],
            costs=[step.cost for step in steps],
            inputs=[step.input_tokens for step in steps],
            outputs=[step.output_tokens for step in steps],
        )
        self._ended.extend(steps)
        by_id = {row["entry_id"]: row["outcome"] for row in rows}
        return [by_id[step.reservation.entry_id] for step in steps]

    # -- in the background ----------------------------------------------------------------------------------------------

    def _owe(self, step: _Finish) -> None:
        step.done, step.error = False, None
        self._owed.append(step)

    def repay(self) -> None:
        """Writes ends that could not be written; what cannot be written now either is kept."""
        with self._background:
            self._repay_all()

    def _repay_all(self) -> None:
        moment = monotonic()
        steps = [self._owed.popleft() for _ in range(len(self._owed))]
        ready = [step for step in steps if step.again_at <= moment]
        self._owed.extend(step for step in steps if step.again_at > moment)
        for provider in CURRENCIES:
            mine = [step for step in ready if step.reservation.provider == provider]
            for batch in (mine[n : n + BATCH] for n in range(0, len(mine), BATCH)):
                if not self._repaid(provider, batch, moment):
                    # One that cannot be written must not keep the rest from it.
                    for step in batch:
                        if not self._repaid(provider, [step], moment):
                            step.again_at = moment + POISON_SECONDS
                            self._owed.append(step)

    def _repaid(self, provider: str, batch: Sequence[_Finish], moment: float) -> bool:
        """False: Postgres refuses the batch for what is in it. What is only not possible now is owed again."""
        try:
            with self._db.direct() as tx:
                outcomes = self._finish_all(tx, provider, batch)
        except MunimentError as error:
            _log.warning("%d ends of reservations are still owed: %s", len(batch), error)
            self._owed.extend(batch)
            return True
        except Exception as error:
            _log.warning("%d ends of reservations are refused together: %s", len(batch), error)
            return False
        for step, outcome in zip(batch, outcomes, strict=True):
            if outcome == "unknown" and moment < step.doubtful_until:
                step.again_at = moment + 5 * REPAY_SECONDS
                self._owed.append(step)
        return True

    def make_certain(self) -> None:
        """Once the disk has all that was committed, looks whether ends are still there, and writes again what a crash of
        Postgres took. Raises Unavailable, with all of them kept."""
        with self._background:
            steps = [self._ended[n] for n in range(len(self._ended))]
            for batch in (steps[n : n + CERTAIN_BATCH] for n in range(0, len(steps), CERTAIN_BATCH)):
                with self._db.direct() as tx:
                    tx.value("wait_for_disk")
                    rows = tx.rows(
                        "budget_unended",
                        entries=[step.reservation.entry_id for step in batch],
                        tenants=[step.reservation.spender.tenant_id for step in batch],
                    )
                lost = {row["entry_id"] for row in rows}
                if lost:
                    _log.warning("Postgres lost %d ends of reservations in a crash; they are written again", len(lost))
                for step in batch:
                    self._ended.popleft()
                    if step.reservation.entry_id in lost:
                        self._owe(step)

    def _write_counts(self) -> None:
        with self._background:
            while batch := [self._counts[n] for n in range(min(len(self._counts), COUNT_BATCH))]:
                with self._db.direct() as tx:
                    tx.value(
                        "budget_count",
                        entries=[entry for entry, _ in batch],
                        tenants=[call.spender.tenant_id for _, call in batch],
                        providers=[call.provider for _, call in batch],
                        stores=[call.spender.store_id for _, call in batch],
                        jobs=[call.spender.job_id for _, call in batch],
                        stages=[call.spender.stage for _, call in batch],
                        classes=[call.spender.call_class for _, call in batch],
                        outcomes=[call.outcome for _, call in batch],
                        inputs=[call.input_tokens for _, call in batch],
                        outputs=[call.output_tokens for _, call in batch],
                    )
                for _ in batch:
                    self._counts.popleft()

    def _return_slices(self, idle: float) -> None:
        with self._db.direct() as tx:
            tx.value("return_slices", owner=self._owner.process_id, idle=idle)


def _refusal(step: _Reserve) -> MunimentError:
    provider, estimate = step.reservation.provider, step.reservation.estimate
    if step.outcome == "lease-lost":
        return Unavailable("the process's lease ended while money was set aside")
    if step.outcome not in ("provider", "tenant", "store", "job"):
        return Unavailable(f"the ledger has no account for {provider}: {step.outcome}")
    sum_text = f"{units(estimate.reserve)} {CURRENCIES[provider]}"
    if step.reads_only:
        detail = (
            f"what is left of the {step.outcome}'s cap for {provider} is kept for reads: {sum_text} cannot be set aside"
        )
    else:
        detail = f"the {step.outcome}'s cap for {provider} is used up: {sum_text} cannot be set aside"
    return BudgetSpent(detail, provider=provider, cap=step.outcome, reads_only=step.reads_only)
