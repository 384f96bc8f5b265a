"""The ledger: reserve → call → settle, per attempt, exact for the fleet (architecture.md §5)."""

from core.budget.lease import ProcessLease
from core.budget.model import Estimate, Reservation, Spender
from core.settings import Settings
from core.store.database import Database


class Ledger:
    """One a process, for any thread. `owner` must be started: reservations carry its id."""

    def __init__(self, db: Database, owner: ProcessLease, settings: Settings) -> None: ...

    def reserve(self, provider: str, estimate: Estimate, spender: Spender) -> Reservation:
        """Sets money aside, durably, before the attempt is sent.

        Raises BudgetSpent (402; `cap` names the cap that is used up, `reads_only` when its last tenth is left to reads),
        Unavailable when Postgres cannot be reached: then nothing may be sent."""
        ...

    def settle(
        self, reservation: Reservation, cost: int, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        """The meter's price, also above the reservation. `outcome`: "ok", or how a metered call failed ("unparsable", …).

        Returns when it is durable; when Postgres is away it is tried again in the background. Never raises for money."""
        ...

    def release(self, reservation: Reservation, outcome: str = "refused") -> None:
        """It cost nothing: never connected, or refused with a non-2xx status. As `settle` else."""
        ...

    def settle_at_estimate(self, reservation: Reservation, outcome: str) -> None:
        """It may have been billed and nobody knows: stands at its input estimate. As `settle` else."""
        ...

    def count(
        self, provider: str, spender: Spender, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        """A call that costs nothing (unpaid provider; outcome "cached": replayed). Written soon, without waiting."""
        ...
