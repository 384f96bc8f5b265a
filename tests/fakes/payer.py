"""`python -m tests.fakes.payer TENANT COUNT`: a process that pays for calls of jev, one after the other.

Each line it prints is an entry's id and how far the call went: `reserved`, `asked`, `settled`. The settings come from the
environment, its death from MUNIMENT_FAULTS. After the last call it holds one more reservation, says `ready` and waits.
"""

import sys
from uuid import UUID

from core.budget.model import Estimate, Spender
from core.budget.money import Money
from core.faults import Faults
from core.settings import load

ESTIMATE = Estimate(reserve=10_000_000, input=1_000)
COST = 4_200


def main() -> None:
    tenant, count = UUID(sys.argv[1]), int(sys.argv[2])
    settings = load()
    spender = Spender(tenant, None, None, "judge", "read")
    with Money(settings, {"read": 8}, Faults(settings.faults)) as money:
        for _ in range(count):
            reservation = money.ledger.reserve("jev", ESTIMATE, spender)
            print(reservation.entry_id, "reserved", flush=True)
            print(reservation.entry_id, "asked", flush=True)
            money.ledger.settle(reservation, COST, 100, 2)
            print(reservation.entry_id, "settled", flush=True)
        with money.shares.slot("jev", "read"):
            reservation = money.ledger.reserve("jev", ESTIMATE, spender)
            print(reservation.entry_id, "ready", flush=True)
            sys.stdin.readline()
            money.ledger.settle(reservation, COST, 100, 2)
            print(reservation.entry_id, "settled", flush=True)


if __name__ == "__main__":
    main()
