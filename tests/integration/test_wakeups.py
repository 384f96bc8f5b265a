"""What wakes a consumer: its subscription, however often that is lost, and the other threads of its process."""

import logging
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from uuid import UUID

import pytest
import redis
from dramatiq import Actor, MessageProxy

from core import clock, ids
from tests.fakes.fleet import until
from tests.fakes.proxy import Proxy
from workers import consumer as consumer_module
from workers import wakeups
from workers.broker import ACTOR, WakeBroker
from workers.consumer import WakeConsumer
from workers.embedded.valkey import Valkey
from workers.wakeups import Doorbell, WakeUps

QUEUE = "embed.interactive"
TENANT = ids.uuid7()
NEVER = 60.0
"""A slow poll that no test lives to see: what comes sooner was woken."""


class Consumption:
    """A consumer in a thread of its own, as Dramatiq runs it; `got` are its messages."""

    def __init__(self, url: str, namespace: str, *, prefetch: int, poll: float, timeout: float) -> None:
        self.broker = WakeBroker(url, namespace=namespace, poll_seconds=poll, timeout=timeout)
        Actor(lambda *_: None, broker=self.broker, actor_name=ACTOR, queue_name=QUEUE, priority=0, options={})
        self.consumer: WakeConsumer = self.broker.consume(QUEUE, prefetch)
        self.got: SimpleQueue[MessageProxy] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="test-consumer")

    def _run(self) -> None:
        for message in self.consumer:
            if message is not None:
                self.got.put(message)
            elif self.broker.draining:
                break

    def job(self, seconds: float = 5.0) -> UUID:
        """The job of the next message, which is acknowledged."""
        message = self.got.get(timeout=seconds)
        self.consumer.ack(message)
        return UUID(message.args[1])


Consume = Callable[..., Consumption]


@pytest.fixture
def namespace() -> str:
    return f"test-{ids.uuid7()}"


@pytest.fixture
def sender(redis_url: str, namespace: str) -> Generator[WakeBroker]:
    broker = WakeBroker(redis_url, namespace=namespace)
    yield broker
    broker.close()


@pytest.fixture
def consume(redis_url: str, namespace: str) -> Generator[Consume]:
    """Starts one; afterwards it must end within a second."""
    started: list[Consumption] = []

    def start(
        url: str = redis_url, *, prefetch: int = 4, poll: float = NEVER, timeout: float = 5.0, heard: bool = True
    ) -> Consumption:
        found = Consumption(url, namespace, prefetch=prefetch, poll=poll, timeout=timeout)
        started.append(found)
        found.thread.start()
        until(lambda: found.consumer.connected and (not found.consumer.deaf or not heard))
        return found

    yield start
    for found in started:
        found.broker.draining = True
        found.consumer.ring()
        began = clock.monotonic()
        found.thread.join(10)
        took = clock.monotonic() - began
        found.consumer.close()
        found.broker.close()
        assert took < 1


def send(broker: WakeBroker) -> UUID:
    job = ids.uuid7()
    broker.send(QUEUE, TENANT, job)
    return job


@contextmanager
def unpublished(broker: WakeBroker) -> Generator[None]:
    """What is sent meanwhile is queued, and nobody is told."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker, "channel", lambda queue: "nobody-listens")
        yield


def told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.name == "workers.wakeups")


def test_a_wake_up_during_an_exchange_is_not_lost(
    consume: Consume, sender: WakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = consume()
    real, late = found.broker.exchange, list[UUID]()

    def exchange(queue: str, done: list[str], count: int) -> list[bytes | None]:
        bodies = real(queue, done, count)
        if not late:
            late.append(send(sender))  # after the fetch ran, before the consumer has its reply
        return bodies

    monkeypatch.setattr(found.broker, "exchange", exchange)
    first = send(sender)
    assert [found.job(), found.job()] == [first, *late]


def test_a_burst_is_fetched_to_its_end(consume: Consume, sender: WakeBroker) -> None:
    found = consume()
    jobs = [send(sender) for _ in range(300)]
    assert [found.job() for _ in jobs] == jobs


def test_an_acknowledgement_rings_when_there_is_more(
    consume: Consume, sender: WakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "ACK_SECONDS", NEVER)
    found = consume(prefetch=1)
    sender.send_many([(QUEUE, TENANT, ids.uuid7()) for _ in range(30)])
    began = clock.monotonic()
    assert len({found.job() for _ in range(30)}) == 30
    assert clock.monotonic() - began < 5  # without the ring each waits for a second


def test_a_lost_subscription_is_told_once_and_hides_nothing(
    consume: Consume, sender: WakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    found = consume()
    with unpublished(sender):
        hidden = send(sender)
    sender.client.client_kill_filter(_type="pubsub")
    assert found.job() == hidden
    until(lambda: told(caplog, "heard again") and not found.consumer.deaf)
    job = send(sender)
    assert found.job() == job
    assert (told(caplog, "not heard"), told(caplog, "heard again")) == (1, 1)


def test_a_new_subscription_wakes_once(sender: WakeBroker) -> None:
    """Before it nobody could hear a wake-up."""
    found = WakeUps(sender.client, QUEUE, sender.channel(QUEUE))
    assert found.wait(0)
    assert not found.problem
    sender.client.client_kill_filter(_type="pubsub")
    assert found.wait(1)
    assert "closed" in found.problem
    until(lambda: found.wait(1))
    assert not found.problem
    assert not found.wait(0.05)
    send(sender)
    assert found.wait(1)
    assert not found.wait(0.05)
    found.close()


def test_a_redis_that_forbids_the_channel_is_polled(
    consume: Consume,
    sender: WakeBroker,
    valkey: Valkey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(wakeups, "SUBSCRIBE_SECONDS", 0.05)
    caplog.set_level(logging.WARNING)

    def refused() -> int:
        return sender.client.info("commandstats").get("cmdstat_subscribe", {}).get("rejected_calls", 0)

    before = refused()
    sender.client.execute_command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels")
    try:
        found = consume(f"redis://deaf:secret@127.0.0.1:{valkey.port}/0", poll=0.1, heard=False)
        assert "NoPermissionError" in found.consumer.deaf
        job = send(sender)
        assert found.job() == job
        until(lambda: refused() > before + 2)
        sender.client.execute_command("ACL", "SETUSER", "deaf", "allchannels")
        until(lambda: not found.consumer.deaf)
        assert (told(caplog, "not heard"), told(caplog, "heard again")) == (1, 1)
    finally:
        sender.client.acl_deluser("deaf")


def test_a_redis_that_went_silent_is_noticed(
    consume: Consume,
    sender: WakeBroker,
    valkey: Valkey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No end of the connection is ever told: only the unanswered ping tells. The product's clocks, faster."""
    for name in ("CHECK_SECONDS", "PING_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(wakeups, name, 0.1)
    caplog.set_level(logging.WARNING)
    with Proxy(valkey.port) as proxy:
        address = valkey.url.replace(f":{valkey.port}/", f":{proxy.port}/")
        found = consume(address, timeout=0.5)
        threading.Event().wait(0.6)  # pings that are answered are no outage
        assert not found.consumer.deaf
        assert proxy.freeze() >= 1
        until(lambda: told(caplog, "no longer answers"))
        until(lambda: found.consumer.connected and not found.consumer.deaf)
        job = send(sender)
        assert found.job() == job
        found.broker.draining = True
        found.consumer.ring()
        found.thread.join(10)


def test_an_outage_does_not_keep_the_processor_busy(
    consume: Consume, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = WakeUps.wait

    def wait(self: WakeUps, seconds: float) -> bool:
        waits.append(seconds)
        return real(self, seconds)

    monkeypatch.setattr(WakeUps, "wait", wait)
    with Proxy(valkey.port) as proxy:
        found = consume(valkey.url.replace(f":{valkey.port}/", f":{proxy.port}/"), timeout=0.5)
    until(lambda: found.consumer.deaf and not found.consumer.connected)
    waits.clear()
    threading.Event().wait(1.5)
    assert 0 < len(waits) < 30


def test_an_idle_consumer_sweeps(
    consume: Consume, sender: WakeBroker, namespace: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "SWEEP_SECONDS", 0)
    dead = WakeBroker(redis_url, namespace=namespace)
    job = send(sender)
    assert len(dead.exchange(QUEUE, [], 1)) == 1
    sender.client.zadd(f"{namespace}:__heartbeats__", {dead.broker_id: 1})
    dead.client.close()
    found = consume(poll=0.1)
    assert found.job() == job
    assert sender.client.zscore(f"{namespace}:__heartbeats__", dead.broker_id) is None


def test_nothing_stays_open(redis_url: str, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    def once() -> int:
        heard = told(caplog, "heard again")
        found = Consumption(redis_url, namespace, prefetch=1, poll=NEVER, timeout=5)
        found.thread.start()
        until(lambda: found.consumer.connected and not found.consumer.deaf)
        found.broker.client.client_kill_filter(_type="pubsub")
        until(lambda: told(caplog, "heard again") > heard)
        found.broker.draining = True
        found.consumer.ring()
        found.thread.join(10)
        found.consumer.close()
        found.broker.close()
        return len(os.listdir("/dev/fd"))

    first = once()
    assert [once(), once()] == [first, first]


def test_a_doorbell_may_be_rung_too_often_and_too_late() -> None:
    bell = Doorbell()
    for _ in range(100_000):
        bell.ring()
    bell.answer()
    bell.close()
    bell.ring()
    assert bell.fileno() == -1


def test_a_client_without_redis_is_told_why(namespace: str) -> None:
    with redis.Redis(port=1, protocol=2) as client:
        found = WakeUps(client, QUEUE, namespace)
        assert not found.wait(0)
        assert "ConnectionError" in found.problem
        found.close()
