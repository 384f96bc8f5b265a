"""Calls through everything a process has: profiles and ledger in Postgres, recorded replies, and caches."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from core.budget.model import Spender
from core.errors import BudgetSpent
from core.models import granting, replay
from core.models.embedding import EmbeddingRefused
from core.models.model import Call, Completion, Cut, Message, ModelRefused, Noul
from core.models.opening import Models
from core.settings import Settings
from tests.conftest import TestDatabase
from tests.fakes.attempting import KEY, KEY_ENV
from tests.fakes.models import Clock
from tests.fakes.provider import Provider, Step, provider
from tests.rows import execute

HELLO = Completion([Message("user", "Where is the owl?")])


class World:
    """One tenant with the profiles `judge` (paid), `writer` (paid) and `own` (unpaid), all on the fake provider."""

    def __init__(self, database: TestDatabase, tenant: UUID, fake: Provider, models: Models, clock: Clock) -> None:
        self.database = database
        self.tenant = tenant
        self.fake = fake
        self.models = models
        self.clock = clock
        for name, profile in {
            "judge": {
                "kind": "jev",
                "model": "jev-1.13.0",
                "testEndpoint": f"{fake.url}/v1/systemone",
                "keyEnv": KEY_ENV,
            },
            "writer": {"kind": "openai", "model": "gpt-4.1-mini", "baseURL": f"{fake.url}/v1", "keyEnv": KEY_ENV},
            "own": {"kind": "local", "model": "own", "baseURL": f"{fake.url}/v1"},
            "embedder": {"kind": "openai", "model": "text-embedding-3-small", "url": fake.url},
        }.items():
            self.grant(name, profile, [str(tenant)])

    def grant(self, name: str, profile: dict[str, Any], grants: Any) -> None:
        with self.database.relay.system() as tx:
            granting.put_profile(tx, name, profile, grants, filed=(), key_envs={KEY_ENV})

    def call(self, *, tenant: UUID | None = None, cache: str | None = None) -> Call:
        return Call(Spender(tenant or self.tenant, None, None, "plan", "read"), cache=cache)

    def entries(self) -> list[tuple[Any, ...]]:
        """(provider, state, outcome, cost) of the ledger, oldest first; unpaid calls are written a little later."""
        return execute(
            self.database.admin, "select provider, state, outcome, cost from budget_entries order by entry_id"
        )


@pytest.fixture
def world(database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(KEY_ENV, KEY)
    clock = Clock()
    settings = Settings.model_validate(
        {
            "database_url": database.dsn("app"),
            "model_key_envs": KEY_ENV,
            "allow_model_cache": True,
            "auth_cache_seconds": 0,
        }
    )
    with provider() as fake, Models(settings, database.app, timing=clock.timing) as models:
        yield World(database, tenant, fake, models, clock)


def test_what_a_call_cost_is_in_the_ledger_to_the_nano_unit(world: World) -> None:
    done = world.models.gateway.complete("writer", HELLO, world.call())
    judged = world.models.gateway.decide("judge", "It lives in the mill.", {"q": Noul("An owl?")}, world.call())
    rows = world.fake.log
    assert [row.cost_nanos for row in rows] == [done.usage.cost, judged.usage.cost]
    assert world.entries() == [
        ("openai", "settled", "ok", done.usage.cost), ("jev", "settled", "ok", judged.usage.cost),
    ]  # fmt: skip
    ids = execute(world.database.admin, "select entry_id from budget_entries order by entry_id")
    assert [row.client_id for row in rows] == [str(entry) for (entry,) in ids]


def test_a_cap_that_is_spent_is_a_named_outcome_and_nothing_is_sent(world: World) -> None:
    execute(world.database.admin, "update budget_accounts set cap = 1 where provider = 'openai'")
    with pytest.raises(BudgetSpent):
        world.models.gateway.complete("writer", HELLO, world.call())
    assert world.fake.log == []


def test_no_tenant_uses_what_is_not_granted_to_it(world: World, database: TestDatabase) -> None:
    stranger = world.call(tenant=UUID(int=7))
    with pytest.raises(ModelRefused, match="no model profile 'writer' is granted"):
        world.models.gateway.complete("writer", HELLO, stranger)
    with pytest.raises(EmbeddingRefused, match="no embedding profile 'embedder'"):
        world.models.embedders.named(UUID(int=7), "embedder")
    assert world.models.gateway.complete("writer", HELLO, world.call()).text
    world.grant("writer", {"kind": "local", "model": "own", "baseURL": f"{world.fake.url}/v1"}, [])
    with pytest.raises(ModelRefused):  # it was taken away
        world.models.gateway.complete("writer", HELLO, world.call())
    world.grant("own", {"kind": "local", "model": "own", "baseURL": f"{world.fake.url}/v1"}, "*")
    assert world.models.gateway.complete("own", HELLO, stranger).text


def test_a_key_that_is_not_set_is_named_and_nothing_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_ENV)
    with pytest.raises(ModelRefused, match=f"profile writer: the environment variable {KEY_ENV} is not set"):
        world.models.gateway.complete("writer", HELLO, world.call())
    assert world.fake.log == []
    assert world.entries() == [("openai", "released", "not-sent", 0)]


def test_no_connection_is_held_while_a_model_is_asked(world: World) -> None:
    world.fake.script([Step(delay=0.5)])
    done: list[Any] = []
    asking = threading.Thread(target=lambda: done.append(world.models.gateway.complete("writer", HELLO, world.call())))
    asking.start()
    until = threading.Event()
    while not world.models.money.shares.in_flight("openai", "read"):
        until.wait(0.01)
    with psycopg.connect(world.database.admin) as admin:
        open_ones = admin.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'"
        ).fetchone()
    asking.join()
    assert done
    assert open_ones == (0,)


def test_s16_a_call_that_waits_for_its_next_try_holds_no_place(world: World) -> None:
    world.fake.script([Step(status=503)])
    held: list[int] = []
    world.clock.asleep = lambda _: held.append(world.models.money.shares.in_flight("openai", "read"))
    assert world.models.gateway.complete("writer", HELLO, world.call()).text
    assert held == [0]


# Recorded replies ---------------------------------------------------------------------------------------------------------


def test_a_recorded_reply_answers_without_a_request_or_money(world: World) -> None:
    gateway = world.models.gateway
    first = gateway.complete("writer", HELLO, world.call(cache="run-1"))
    again = gateway.complete("writer", HELLO, world.call(cache="run-1"))
    assert (again.text, again.model) == (first.text, first.model)
    assert (first.usage.cached, again.usage.cached) == (False, True)
    assert (again.usage.cost, again.usage.input_tokens) == (first.usage.cost, first.usage.input_tokens)
    assert len(world.fake.log) == 1
    assert execute(world.database.admin, "select spent from budget_accounts where provider = 'openai'") == [
        (first.usage.cost,)
    ]
    # Any other request, cache or tenant is a miss.
    gateway.complete("writer", Completion(HELLO.messages, max_tokens=7), world.call(cache="run-1"))
    gateway.complete("writer", HELLO, world.call(cache="run-2"))
    gateway.complete("writer", HELLO, world.call())
    assert len(world.fake.log) == 4


def test_decisions_are_recorded_too(world: World) -> None:
    ask = lambda cache: world.models.gateway.decide(  # noqa: E731
        "judge", "It lives in the mill.", {"q": Noul("An owl?")}, world.call(cache=cache)
    )
    assert ask("run").answers == ask("run").answers
    assert len(world.fake.log) == 1


def test_what_no_call_returned_is_not_recorded(world: World) -> None:
    gateway = world.models.gateway
    world.fake.script([Step(finish="length"), Step(status=400), Step(body="{"), Step(body="{")])
    for error in (Cut, ModelRefused, Exception):
        with pytest.raises(error):
            gateway.complete("writer", HELLO, world.call(cache="run"))
    assert execute(world.database.admin, "select count(*) from model_cache") == [(0,)]
    assert not gateway.complete("writer", HELLO, world.call(cache="run")).usage.cached


def test_a_cut_reply_is_recorded_for_a_call_that_accepts_it(world: World) -> None:
    world.fake.script([Step(finish="length")])
    accepting = Completion(HELLO.messages, accept_cut=True)
    assert world.models.gateway.complete("writer", accepting, world.call(cache="run")).cut
    assert world.models.gateway.complete("writer", accepting, world.call(cache="run")).usage.cached


def test_a_cache_that_is_away_fails_no_call(world: World) -> None:
    execute(world.database.admin, "revoke all on model_cache from muniment_app")
    assert world.models.gateway.complete("writer", HELLO, world.call(cache="run")).text


def test_a_cache_goes_to_a_file_and_back(world: World, database: TestDatabase) -> None:
    world.models.gateway.complete("writer", HELLO, world.call(cache="run"))
    lines = list(replay.exported(database.relay, world.tenant, "run"))
    assert len(lines) == 1
    assert KEY not in lines[0]
    assert replay.cleared(database.relay, world.tenant, "run") == 1
    assert replay.imported(database.relay, world.tenant, "other", lines) == 1
    assert world.models.gateway.complete("writer", HELLO, world.call(cache="other")).usage.cached
    with pytest.raises(Exception, match="line 2: is no entry"):
        replay.imported(database.relay, world.tenant, "other", [lines[0], "{}"])
