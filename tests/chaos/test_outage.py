"""A provider that is down for ten minutes in the middle of a thousand calls of four processes (failure-cases.md H2).

Ten times as fast: one clock that runs ten times as fast as the machine's, shared by the processes
(tests/fakes/caller.py), and the open periods in Postgres as much shorter. All times below are on that clock. Half of the
outage answers 503, half refuses connections. What is asserted is strict in spite of the scale: 1 s is 0.1 s of the machine.
"""

import json
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.models.breaker import OPEN_SECONDS
from core.settings import child_environment
from tests.conftest import TestDatabase
from tests.fakes.fleet import Process
from tests.fakes.provider import Step, provider
from tests.rows import execute

SCALE = 10.0
PROCESSES = 4
CALLS = 1_000
BEFORE, DOWN, AFTER = 30.0, 600.0, 50.0
STALE = 1.0
"""How late a process may learn of the tenth failure."""
JITTER = 0.5
"""Of two trials' distance: each is granted by Postgres, and leaves a moment later."""


@pytest.mark.chaos
@pytest.mark.timeout(170)
def test_h2_a_provider_that_is_down_for_ten_minutes(database: TestDatabase, tenant: UUID, tmp_path: Path) -> None:
    logs = [tmp_path / f"calls-{number}" for number in range(PROCESSES)]
    with provider() as fake, ExitStack() as stack:
        callers: list[Process] = []
        for number, log in enumerate(logs):
            work = {
                "dsn": database.dsn("app"), "endpoint": f"{fake.url}/v1/systemone", "tenant": str(tenant), "log": str(log),
                "calls": CALLS // PROCESSES, "seconds": BEFORE + DOWN + AFTER, "scale": SCALE, "seed": number,
            }  # fmt: skip
            process = Process(["-m", "tests.fakes.caller", json.dumps(work)], child_environment())
            stack.callback(process.end)
            callers.append(process)
        for process in callers:
            process.read("ready")
        for process in callers:
            process.say("go")
        time.sleep(BEFORE / SCALE)
        fake.always(Step(status=503))
        down_at = time.monotonic() * SCALE
        time.sleep(DOWN / 2 / SCALE)
        fake.refuse()
        time.sleep(DOWN / 2 / SCALE)
        fake.always(Step())
        fake.listen()
        up_at = time.monotonic() * SCALE
        for process in callers:
            process.read("done")
            assert process.died() == 0, process.errors()

    events = sorted(
        (json.loads(line) for log in logs for line in log.read_text().splitlines()), key=lambda event: event["at"]
    )
    all_calls_end_in_a_named_outcome(events, up_at)
    hardly_anything_is_sent_while_it_is_down(events, down_at, up_at)
    every_attempt_stands_once(database, {row.client_id: row.cost_nanos for row in fake.log if row.sent})


def every_attempt_stands_once(database: TestDatabase, billed: dict[str, int]) -> None:
    """What was answered at its price, all else at nothing: refusals and connections that were never made."""
    entries = execute(database.admin, "select entry_id::text, state, cost from budget_entries")
    settled = {entry: cost for entry, state, cost in entries if state == "settled"}
    assert settled == billed
    assert {state for _, state, _ in entries} <= {"settled", "released", "estimated"}
    assert {cost for _, state, cost in entries if state == "released"} == {0}
    estimated = [cost for _, state, cost in entries if state == "estimated"]
    assert len(estimated) <= 2 * PROCESSES, "only what was under way when connections were reset"
    (account,) = execute(database.admin, "select spent, reserved from budget_accounts where provider = 'jev'")
    assert account == (sum(billed.values()) + sum(estimated), 0)


def all_calls_end_in_a_named_outcome(events: list[dict[str, Any]], up_at: float) -> None:
    ended = [event for event in events if event["what"] == "ended"]
    assert len(ended) == CALLS
    assert {event["how"] for event in ended} == {"ok", "ModelUnavailable"}
    assert {event["status"] for event in ended} == {200, 503}
    late = [event["how"] for event in ended if event["at"] > up_at + OPEN_SECONDS + 2 * STALE]
    assert late, "calls went on after the outage"
    assert set(late) == {"ok"}


def hardly_anything_is_sent_while_it_is_down(events: list[dict[str, Any]], down_at: float, up_at: float) -> None:
    opened = [event["at"] for event in events if event["what"] == "opened" and event["at"] > down_at]
    assert opened, "ten failures in a row open the breaker"
    recorded = opened[0]
    sent = [event["at"] for event in events if event["what"] == "sent" and recorded + STALE < event["at"] < up_at]
    apart = [later - earlier for earlier, later in pairwise(sent)]
    assert min(apart) > OPEN_SECONDS - JITTER, f"one trial in {OPEN_SECONDS:g} s: {sorted(apart)[:5]}"
    assert len(sent) > 0.8 * (up_at - recorded) / (OPEN_SECONDS + 2 * STALE), "and there are trials"
    assert recorded < down_at + 30
