"""Connections that died: nobody waits for more of them than for the one in use, and silence is noticed."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

import pytest
import redis

from core.errors import Unavailable
from core.store.database import Database, Tx
from tests.conftest import TestDatabase
from tests.fakes.fleet import until
from tests.fakes.proxy import Proxy
from workers import channels
from workers.channels import RELAY, Ear
from workers.embedded.valkey import Valkey

IDLE = 6


def through(database: TestDatabase, proxy: Proxy) -> Database:
    address = database.dsn("app").replace(f":{database.server.port}/", f":{proxy.port}/")
    return Database(address, name="test-proxied", size=IDLE)


def client_port(tx: Tx) -> int:
    connection: Any = tx._connection  # pyright: ignore[reportPrivateUsage]
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as copy:
        return copy.getsockname()[1]


def test_whoever_loses_a_connection_does_not_wait_for_the_idle_ones(database: TestDatabase) -> None:
    """The network goes silent on all of them and one is then refused: the others must not be asked whether they live."""
    with Proxy(database.server.port) as proxy, through(database, proxy) as db:
        with ExitStack() as stack:
            for _ in range(IDLE):
                stack.enter_context(db.direct()).value("database_now")
        began = time.monotonic()
        with pytest.raises(Unavailable):
            _lose_one(db, proxy)
        assert time.monotonic() - began < 2
        for _ in range(2 * IDLE):  # none of the silent ones is handed out
            with db.direct() as tx:
                assert tx.value("database_now")
        assert time.monotonic() - began < 10


def _lose_one(db: Database, proxy: Proxy) -> None:
    with db.direct() as tx:
        assert proxy.freeze() == IDLE
        proxy.cut(client_port(tx))
        tx.value("database_now")


def test_those_who_lose_theirs_one_after_the_other_do_not_throw_away_what_is_new(database: TestDatabase) -> None:
    """Six statements fail within a moment; the connections that were made for the first one stay."""
    with Proxy(database.server.port) as proxy, through(database, proxy) as db:
        with ExitStack() as stack:
            used = [stack.enter_context(_losing(db)) for _ in range(IDLE)]
            for tx in used:
                proxy.cut(client_port(tx))
        with db.direct() as tx:
            first = client_port(tx)
        with ExitStack() as stack:
            again = {client_port(stack.enter_context(db.direct())) for _ in range(IDLE)}
        assert first in again


@pytest.mark.parametrize("code", ["57014", "55P03"], ids=["statement_timeout", "lock_timeout"])
def test_a_statement_that_took_too_long_is_no_lost_connection(
    database: TestDatabase, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    """Its connection is past its lifetime, so that the pool closes it when it comes back."""
    with Database(database.dsn("app"), name="test", size=2) as db:
        with db.direct() as first, db.direct() as second:
            ports = [client_port(first), client_port(second)]
        with pytest.raises(Unavailable):
            _cancelled(db, code, ports)
        with db.direct() as tx:
            assert [client_port(tx)] == ports, "the other one stays"
    assert "away" not in caplog.text


def _cancelled(db: Database, code: str, ports: list[int]) -> None:
    with db.direct() as tx:
        ports.remove(client_port(tx))
        connection: Any = tx._connection  # pyright: ignore[reportPrivateUsage]
        connection._expire_at = 0
        connection.execute(f"do $$ begin raise exception using errcode = '{code}'; end $$")


def test_the_connection_that_came_back_last_is_given_first(database: TestDatabase) -> None:
    with Database(database.dsn("app"), name="test", size=3) as db:
        with db.direct() as last, db.direct(), db.direct():
            port = client_port(last)
        with db.direct() as tx:
            assert client_port(tx) == port


@contextmanager
def _losing(db: Database) -> Iterator[Tx]:
    with suppress(Unavailable), db.direct() as tx:
        yield tx
        tx.value("database_now")


def test_a_redis_that_went_silent_is_noticed_and_nudges_are_heard_again(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No end of the connection is ever told: only the unanswered pings tell. The product's clocks, faster."""
    monkeypatch.setattr(channels, "LISTEN_SECONDS", 0.05)
    heard: SimpleQueue[str] = SimpleQueue()
    with Proxy(valkey.port) as proxy:
        address = valkey.url.replace(f":{valkey.port}/", f":{proxy.port}/")
        listening = redis.Redis.from_url(address, health_check_interval=1, socket_timeout=5, protocol=2)
        speaking = redis.Redis.from_url(valkey.url)
        ear = Ear(listening, heard.put)
        ear.start()
        try:

            def nudged() -> bool:
                speaking.publish(RELAY, "write.bulk")
                try:
                    return heard.get(timeout=0.05) == "write.bulk"
                except Empty:
                    return False

            until(nudged)
            assert proxy.freeze() >= 1
            while not heard.empty():
                heard.get()
            until(nudged, 10)
        finally:
            ear.stop()
            listening.close()
            speaking.close()
