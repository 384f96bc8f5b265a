"""Kinds of job that only tests know. All but `other` run on the embed queues, which the groups fast and bulk serve."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from core.clock import now
from core.errors import BudgetSpent, Unavailable
from core.jobs.model import Deferred, Done, Kind, Outcome, Waiting
from core.store.database import Tx
from tests.fakes.jobs import EMBED, add_children
from workers.actors.work import Actor, Work

KINDS = {
    kind.name: kind
    for kind in (
        Kind("noop", "embed", 60),
        Kind("many", "embed", 60, batch=32),
        Kind("counter", "embed", 60),
        Kind("slow", "embed", 60),
        Kind("fail", "embed", 60),
        Kind("refuse", "embed", 60),
        Kind("defer", "embed", 60),
        Kind("spend", "embed", 60),
        Kind("ask", "embed", 60, from_accept=True),
        Kind("die", "embed", 60),
        Kind("hang", "embed", 1),
        Kind("block", "embed", 1),
        Kind("parent", "embed", 60),
        Kind("gate", "embed", 60),
    )
}

ADD = """insert into effects (tenant_id, job_id, times) values (%s, %s, 1)
         on conflict (tenant_id, job_id) do update set times = effects.times + 1"""


def count(tx: Tx, tenant_id: UUID, job_id: UUID) -> None:
    """The effect: a row that counts how often it was committed."""
    tx._connection.execute(ADD, [tenant_id, job_id])  # pyright: ignore[reportPrivateUsage]


def _done(work: Work) -> Done:
    claim = work.claim
    return Done({"attempt": claim.attempt}, lambda tx: count(tx, claim.tenant_id, claim.job_id))


def noop(work: Work) -> Outcome:
    return Done({"attempt": work.claim.attempt})


def counter(work: Work) -> Outcome:
    work.body()
    return _done(work)


def slow(work: Work) -> Outcome:
    """Takes `seconds`, looking at its lease and deadline."""
    until = time.monotonic() + work.body()["seconds"]
    while time.monotonic() < until:
        work.check()
        time.sleep(0.02)
    return _done(work)


def gate(work: Work) -> Outcome:
    """Makes the file `started` and goes on once the file `open` exists."""
    body = work.body()
    Path(body["started"]).touch()
    while not Path(body["open"]).exists():
        time.sleep(0.01)
    return _done(work)


def fail(work: Work) -> Outcome:
    raise Unavailable(f"attempt {work.claim.attempt} failed")


def refuse(work: Work) -> Outcome:
    """An error without a text, of a class that nobody expects."""
    raise ZeroDivisionError


def defer(work: Work) -> Outcome:
    if work.claim.created_at < now() - timedelta(hours=1):
        return _done(work)
    return Deferred("money", now() + timedelta(minutes=5))


def spend(work: Work) -> Outcome:
    """There is no money."""
    raise BudgetSpent("the provider's cap for jev is used up", provider="jev", cap="provider")


def die(work: Work) -> Outcome:
    """Takes the whole process along, `times` times."""
    if work.claim.attempt <= work.body().get("times", 99):
        os.kill(os.getpid(), signal.SIGKILL)
    return _done(work)


def hang(work: Work) -> Outcome:
    """Python code that never ends by itself; the time limit can interrupt it."""
    if work.claim.attempt > 1:
        return _done(work)
    while True:
        time.sleep(0.01)


def block(work: Work) -> Outcome:
    """One long call that nothing interrupts."""
    if work.claim.attempt > 1:
        return _done(work)
    time.sleep(work.body()["seconds"])
    return _done(work)


def parent(work: Work) -> Outcome:
    """First adds `children` of kind `child`, then waits; ends when they have."""
    body = work.body()
    with work.db.tenant(work.claim.tenant_id) as tx:
        known = tx.rows("children_by_state", tenant=work.claim.tenant_id, parent=work.claim.job_id)
        if not known:
            add_children(tx, work.claim, body["children"], body.get("child", "counter"), EMBED)
    if not known:
        return Waiting()
    states = {row["state"]: row["jobs"] for row in known}
    return Waiting() if {"queued", "running", "deferred"} & states.keys() else Done(states)


ACTORS: dict[str, Actor] = {
    "noop": noop, "many": noop, "counter": counter, "slow": slow, "fail": fail, "refuse": refuse, "defer": defer,
    "spend": spend, "ask": spend,
    "die": die, "hang": hang, "block": block, "parent": parent, "gate": gate,
}  # fmt: skip
