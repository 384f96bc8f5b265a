"""`python -m tests.bench.paying`: one process of tests.bench.ledger. Settings come from the environment.

`calls TENANT ENDPOINT THREADS`: asks the provider, as fast as it answers, until SIGTERM; then it stops in order.
`pairs TENANT SECONDS THREADS RATE`: reserves and settles without a call, RATE times a second at random moments (0: flat out);
prints how long each pair took, as JSON. It prints `ready`, and begins at a line on standard input.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from uuid import UUID

from core.budget.model import Estimate, Spender
from core.budget.money import Money
from core.clock import monotonic
from core.errors import BudgetSpent, MunimentError
from core.faults import Faults
from core.models.model import Call, Noul
from core.models.opening import Models
from core.models.profiles import parse_model
from core.settings import load
from core.store.database import Database

KEY_ENV = "BENCH_KEY"
SPENT_SECONDS = 0.1
"""How long a caller without money waits before it asks again."""
PAIR = Estimate(reserve=10_000_000, input=4_200)


def calls(tenant: UUID, endpoint: str, threads: int) -> None:
    settings = load()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    profile = parse_model(
        "bench", {"kind": "jev", "model": "jev-1.13.0", "keyEnv": KEY_ENV, "testEndpoint": endpoint}, {KEY_ENV}
    )
    with (
        Database(settings.secret("database_url"), name="bench", size=1) as db,
        Models(settings, db, faults=Faults(settings.faults)) as models,
    ):
        print("ready", models.money.lease.process_id, flush=True)

        def work(n: int) -> None:
            dice = random.Random(n)
            while not stopping.is_set():
                spender = Spender(tenant, None, None, "judge", "read")
                question = {"q": Noul(f"Is {dice.random()} small?")}
                try:
                    models.gateway.decide(profile, "x" * dice.randrange(10, 900), question, Call(spender))
                except BudgetSpent:
                    stopping.wait(SPENT_SECONDS)
                except MunimentError:
                    pass  # the ledger's entry says what became of it

        _run(work, threads)


def pairs(tenant: UUID, seconds: float, threads: int, rate: float) -> None:
    settings = load()
    with Money(settings, {"read": 1}) as money:
        spender = Spender(tenant, None, None, "judge", "read")
        for _ in range(20):  # connections, plans
            money.ledger.settle(money.ledger.reserve("jev", PAIR, spender), PAIR.input, 100, 0)
        print("ready", money.lease.process_id, flush=True)
        sys.stdin.readline()
        took: list[float] = []
        end = monotonic() + seconds

        def work(n: int) -> None:
            dice = random.Random(os.getpid() * 100 + n)
            # Calls come when they come: processes that kept step would meet at the account's row each time, or never.
            gap = dice.expovariate if rate else lambda _: 0.0
            due = monotonic() + gap(rate / threads)
            while (moment := monotonic()) < end:
                if rate and moment < due:
                    time.sleep(due - moment)
                began = time.perf_counter()
                money.ledger.settle(money.ledger.reserve("jev", PAIR, spender), PAIR.input, 100, 0)
                took.append(time.perf_counter() - began)
                due = max(due + gap(rate / threads), monotonic() - 0.1)

        _run(work, threads)
    print(json.dumps(took), flush=True)


def _run(work: Callable[[int], None], threads: int) -> None:
    started = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


if __name__ == "__main__":
    mode, who, *rest = sys.argv[1:]
    if mode == "calls":
        calls(UUID(who), rest[0], int(rest[1]))
    else:
        pairs(UUID(who), float(rest[0]), int(rest[1]), float(rest[2]))
