"""Wake-ups through a real Valkey: pushed, survived, given back, forgotten. Postgres has no part in this."""

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
import redis

from core import clock, ids
from tests.services import short_folder, start_valkey
from workers import consumer as consumer_module
from workers.broker import WakeBroker
from workers.embedded.valkey import Valkey
from workers.worker import WakeWorker

FAST = "write.interactive"
OTHER = "embed.interactive"
TENANT = ids.uuid7()


class Seen:
    """A handler that notes what it got; `gate` holds every job until it is opened."""

    def __init__(self, *, open_gate: bool = True) -> None:
        self.jobs: list[UUID] = []
        self.started: list[UUID] = []
        self.gate = threading.Event()
        self._change = threading.Condition()
        if open_gate:
            self.gate.set()

    def __call__(self, tenant_id: UUID, job_id: UUID, queue: str) -> None:
        with self._change:
            self.started.append(job_id)
            self._change.notify_all()
        assert self.gate.wait(60), "nobody opened the gate"
        with self._change:
            self.jobs.append(job_id)
            self._change.notify_all()

    def wait(self, count: int, seconds: float = 15.0) -> None:
        with self._change:
            assert self._change.wait_for(lambda: len(self.jobs) >= count, seconds), f"{len(self.jobs)} of {count} jobs"

    def wait_started(self, count: int, seconds: float = 15.0) -> None:
        with self._change:
            assert self._change.wait_for(lambda: len(self.started) >= count, seconds), f"{len(self.started)} started"


class Redis:
    """A server that can be restarted on its port, losing everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = start_valkey(folder)
        self._port = self._server.port
        self.url = self._server.url
        self.client = redis.Redis.from_url(self.url, protocol=2)

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server = Valkey(self._folder / "valkey", port=self._port, persistent=False)
        self._server.start()

    def names(self) -> set[str]:
        return {key.decode() for key in self.client.scan_iter()}

    def waiting(self, queue: str = FAST) -> int:
        return int(self.client.llen(f"muniment:{queue}"))


@pytest.fixture
def server() -> Generator[Redis]:
    with short_folder() as folder:
        found = Redis(folder)
        yield found
        found.client.close()
        found.stop()


@contextmanager
def sender(server: Redis) -> Generator[WakeBroker]:
    broker = WakeBroker(server.url)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def running(
    server: Redis,
    handle: Callable[[UUID, UUID, str], None],
    *,
    queues: tuple[str, ...] = (FAST,),
    threads: int = 2,
    poll: float = 60.0,
    timeout: float = 5.0,
) -> Generator[WakeWorker]:
    """A worker that has reached Redis. The slow poll is so slow that only pushed wake-ups can explain a quick start."""
    broker = WakeBroker(server.url, poll_seconds=poll, timeout=timeout)
    worker = WakeWorker(broker, queues, threads, handle)
    worker.start()
    try:
        until(worker.alive)
        yield worker
    finally:
        worker.stop(10)
        broker.close()


def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = clock.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert clock.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.01)


def some(count: int) -> list[UUID]:
    return [ids.uuid7() for _ in range(count)]


def send(broker: WakeBroker, jobs: list[UUID], queue: str = FAST) -> None:
    broker.send_many([(queue, TENANT, job) for job in jobs])


def test_a_wake_up_starts_an_idle_worker_at_once(server: Redis) -> None:
    got: list[tuple[UUID, UUID, str]] = []
    arrived = threading.Event()

    def handle(tenant_id: UUID, job_id: UUID, queue: str) -> None:
        got.append((tenant_id, job_id, queue))
        arrived.set()

    with running(server, handle, queues=(FAST, OTHER)), sender(server) as broker:
        threading.Event().wait(1.0)  # idle: Dramatiq's own consumer would sleep up to a second by now
        job, start = ids.uuid7(), clock.monotonic()
        broker.send(OTHER, TENANT, job)
        assert arrived.wait(5)
        assert clock.monotonic() - start < 0.5
    assert got == [(TENANT, job, OTHER)]


def test_a_lost_publish_costs_one_slow_poll(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    with running(server, seen, poll=0.3), sender(server) as broker:
        monkeypatch.setattr(broker, "channel", lambda queue: "nobody-listens")
        broker.send(FAST, TENANT, ids.uuid7())
        seen.wait(1, 3)


def test_an_idle_worker_leaves_redis_alone(server: Redis) -> None:
    def calls() -> int:
        stats: dict[str, dict[str, int]] = server.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "smembers", "keys"))

    with running(server, Seen(), queues=(FAST, OTHER), poll=0.5) as worker:
        before = calls()
        threading.Event().wait(2.0)
        assert calls() - before <= 2 * (4 + 1)  # two queues, a poll each half second; delay queues would double it
        assert worker.alive()


def test_an_acknowledgement_wakes_a_full_consumer(server: Redis) -> None:
    seen = Seen()
    jobs = some(60)
    with sender(server) as broker, running(server, seen, threads=1):
        start = clock.monotonic()
        send(broker, jobs)
        seen.wait(60)
        # Prefetch is one: without the wake-up each job would wait for the 0.2 s tick.
        assert clock.monotonic() - start < 60 * consumer_module.ACK_SECONDS / 2
    assert seen.jobs == jobs


def test_no_more_is_held_than_there_are_threads(server: Redis) -> None:
    seen = Seen(open_gate=False)
    with sender(server) as broker, running(server, seen, threads=3):
        send(broker, some(10))
        seen.wait_started(3)
        assert server.waiting() == 7
        seen.gate.set()
        seen.wait(10)


def test_a_slow_tenant_does_not_strand_what_was_prefetched(server: Redis) -> None:
    """Failure case D6: two queues share two threads, so more is prefetched than there are threads."""
    slow, quick = threading.Event(), Seen()
    stuck = ids.uuid7()

    def handle(tenant_id: UUID, job_id: UUID, queue: str) -> None:
        if tenant_id == stuck:
            assert slow.wait(60)
        quick(tenant_id, job_id, queue)

    with sender(server) as broker, running(server, handle, queues=(FAST, OTHER), threads=2):
        broker.send(FAST, stuck, ids.uuid7())
        send(broker, some(30), OTHER)
        send(broker, some(30), FAST)
        quick.wait(60)
        slow.set()
        quick.wait(61)


def test_a_restart_of_redis_is_survived(server: Redis) -> None:
    """Failure case D7. A job that runs across the restart ends quietly, and later wake-ups are heard again."""
    seen = Seen(open_gate=False)
    with running(server, seen, threads=2, timeout=1.0) as worker, sender(server) as broker:
        send(broker, some(2))
        seen.wait_started(2)
        server.stop()
        until(lambda: not worker.alive())
        assert any("Redis" in reason or "heard" in reason for reason in worker.status().reasons)
        with pytest.raises(redis.RedisError):
            broker.send(FAST, TENANT, ids.uuid7())
        seen.gate.set()
        seen.wait(2)
        server.start()
        until(worker.alive, 10)
        send(broker, some(20))
        seen.wait(22, 5)
        assert worker.status().failed == 0
    assert {key for key in server.names() if "acks" in key} == set()


def test_flushall_is_survived(server: Redis) -> None:
    seen = Seen(open_gate=False)
    with running(server, seen) as worker, sender(server) as broker:
        send(broker, some(5))
        seen.wait_started(2)
        server.client.flushall()
        server.client.script_flush()
        later = some(5)
        send(broker, later)
        seen.gate.set()
        until(lambda: set(later) <= set(seen.jobs), 5)
        assert worker.alive()


def test_a_socket_time_out_is_a_connection_loss(server: Redis) -> None:
    """dramatiq issue 894: its consumer gives up on one; ours says so, and goes on afterwards."""
    seen = Seen()
    with running(server, seen, poll=0.1, timeout=0.3) as worker, sender(server) as broker:
        server.client.client_pause(1_500)
        until(lambda: any("TimeoutError" in reason for reason in worker.status().reasons), 5)
        broker.send(FAST, TENANT, ids.uuid7())
        seen.wait(1, 10)
        until(worker.alive, 10)


def test_what_a_lost_reply_carried_comes_back(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """queue-facts.md B3: a fetch whose reply is lost strands its messages for as long as the process lives."""
    monkeypatch.setattr(consumer_module, "RECONCILE_SECONDS", 0.2)
    seen = Seen()
    broker = WakeBroker(server.url, poll_seconds=0.1)
    worker = WakeWorker(broker, [FAST], 2, seen)
    jobs = some(3)
    send(broker, jobs)
    assert len(broker.exchange(FAST, [], 3)) == 3  # fetched by this process, known to no consumer of it
    worker.start()
    seen.wait(3)
    assert set(seen.jobs) == set(jobs)
    assert worker.stop(10)
    broker.close()
    assert not any("acks" in key or ".msgs" in key for key in server.names())


GARBAGE = [
    b"\xff\xfe not text",
    b"{",
    b"[]",
    b'{"queue_name":"write.interactive"}',
    b'{"queue_name":"elsewhere","actor_name":"wake","args":[],"kwargs":{},"options":{"redis_message_id":"g4"}}',
    b'{"queue_name":"write.interactive","actor_name":"gone","args":[],"kwargs":{},"options":{"redis_message_id":"g5"}}',
    b'{"queue_name":"write.interactive","actor_name":"wake","args":[],"kwargs":{},"options":{}}',
    b'{"queue_name":"write.interactive","actor_name":"wake","args":[],"kwargs":{},"options":[]}',
    b'{"queue_name":"write.interactive","actor_name":"wake","args":[],"kwargs":3,"options":{"redis_message_id":"g8"}}',
    b'{"queue_name":"write.interactive","actor_name":"wake","args":[],"kwargs":{},'
    b'"options":{"redis_message_id":"g9","eta":9}}',
    b'{"queue_name":"write.interactive","actor_name":[],"args":[],"kwargs":{},"options":{"redis_message_id":"g10"}}',
    b'{"queue_name":"write.interactive","actor_name":"wake","args":[],"kwargs":{},'
    b'"options":{"redis_message_id":"\\ud800"}}',
    b"[" * 100_000,
]


def test_garbage_is_set_aside_and_its_neighbours_proceed(server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Failure cases H9, D9: bodies nobody can read, an unknown actor, another queue's message, a missing body."""
    caplog.set_level(logging.ERROR)
    seen = Seen()
    jobs = some(len(GARBAGE) + 1)
    with sender(server) as broker:
        for number, (body, job) in enumerate(zip(GARBAGE, jobs, strict=False)):
            broker.do_enqueue(FAST, f"g{number}", body)
            broker.send(FAST, TENANT, job)
        server.client.rpush(f"muniment:{FAST}", "no-body", b"\xff\xfe")
        broker.send(FAST, TENANT, jobs[-1])
        with running(server, seen, threads=4) as worker:
            seen.wait(len(jobs))
            assert worker.status().rejected == len(GARBAGE) + 2
            assert worker.alive()
    assert Counter(seen.jobs) == Counter(jobs)
    set_aside = set(server.client.zrange(f"muniment:{FAST}.XQ", 0, -1))
    assert set_aside == {f"g{number}".encode() for number in range(len(GARBAGE))}
    assert not any("acks" in key or key.endswith(f"{FAST}.msgs") for key in server.names())
    assert "g0" in caplog.text


@pytest.mark.parametrize("args", [(), ("x", "y", FAST), (str(TENANT), str(TENANT), "elsewhere"), (1, 2, 3)])
def test_wrong_arguments_are_dropped(server: Redis, args: tuple[object, ...]) -> None:
    seen = Seen()
    with sender(server) as broker, running(server, seen) as worker:
        queue, message_id, body = broker._message(FAST, TENANT, TENANT)
        good = f'["{TENANT}","{TENANT}","{FAST}"]'
        broken = body.decode().replace(good, json.dumps(args))
        assert broken != body.decode()
        broker.do_enqueue(queue, message_id, broken.encode())
        last = ids.uuid7()
        broker.send(FAST, TENANT, last)
        seen.wait(1)
        until(lambda: worker.status().rejected == 1)
        assert seen.jobs == [last]


def test_a_handler_that_raises_spends_its_wake_up(server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    calls = Seen()

    def handle(tenant_id: UUID, job_id: UUID, queue: str) -> None:
        calls(tenant_id, job_id, queue)
        raise RuntimeError("the handler's own trouble")

    with sender(server) as broker, running(server, handle) as worker:
        send(broker, some(5))
        until(lambda: worker.status().failed == 5)
        until(lambda: not any("acks" in key or ".msgs" in key for key in server.names()))
        assert worker.alive()
    assert len(calls.jobs) == 5
    assert "the handler's own trouble" in caplog.text


def test_a_stop_lets_jobs_end_and_gives_the_rest_back(server: Redis) -> None:
    seen = Seen(open_gate=False)
    jobs = some(12)
    results: list[bool] = []
    with sender(server) as broker:
        send(broker, jobs[:6], FAST)
        send(broker, jobs[6:], OTHER)
        own = WakeBroker(server.url, poll_seconds=60)
        worker = WakeWorker(own, [FAST, OTHER], 2, seen)
        worker.start()
        seen.wait_started(2)
        until(lambda: server.waiting(FAST) + server.waiting(OTHER) == 12 - 4)
        stopping = threading.Thread(target=lambda: results.append(worker.stop(20)))
        stopping.start()
        # While the two still run, everything that was only prefetched is there for others.
        until(lambda: server.waiting(FAST) + server.waiting(OTHER) == 12 - 2)
        assert seen.jobs == []
        seen.gate.set()
        stopping.join(20)
        assert results == [True]
        own.close()
        assert len(seen.jobs) == 2
        assert server.names() == {
            *(f"muniment:{queue}{end}" for queue in (FAST, OTHER) for end in ("", ".msgs")),
            "muniment:__heartbeats__",
        }
        with running(server, seen, queues=(FAST, OTHER)):
            seen.wait(12)
    assert Counter(seen.jobs) == Counter(jobs)


def test_a_stop_right_after_the_start_ends(server: Redis) -> None:
    for _ in range(5):
        broker = WakeBroker(server.url)
        worker = WakeWorker(broker, [FAST, OTHER], 8, Seen())
        worker.start()
        start = clock.monotonic()
        assert worker.stop(10)
        assert clock.monotonic() - start < 5
        broker.close()


def test_a_stop_says_when_jobs_outlast_it(server: Redis) -> None:
    seen = Seen(open_gate=False)
    with sender(server) as broker, running(server, seen) as worker:
        broker.send(FAST, TENANT, ids.uuid7())
        seen.wait_started(1)
        assert worker.status().running == 1
        assert not worker.stop(0.2)
        seen.gate.set()


def test_a_stop_without_redis_ends(server: Redis) -> None:
    seen = Seen(open_gate=False)
    with running(server, seen, timeout=0.5) as worker, sender(server) as broker:
        send(broker, some(4))
        seen.wait_started(2)
        server.stop()
        seen.gate.set()
        seen.wait(2)
        start = clock.monotonic()
        assert worker.stop(10)
        assert clock.monotonic() - start < 8


def test_a_thread_that_ended_is_noticed(server: Redis) -> None:
    """dramatiq issue 445: a worker whose threads have gone looks well from outside."""
    seen = Seen(open_gate=False)
    with sender(server) as broker, running(server, seen) as worker:
        broker.send(FAST, TENANT, ids.uuid7())
        seen.wait_started(1)
        threads = worker._worker.consumers.pop(FAST)  # the thread finds no consumer to acknowledge with
        seen.gate.set()
        until(lambda: not worker.alive())
        assert "1 of 2 worker threads ended: KeyError" in worker.status().reasons[0]
        worker._worker.consumers[FAST] = threads


def test_a_dead_process_leaves_nothing_behind(server: Redis) -> None:
    jobs = some(5)
    with sender(server) as broker, sender(server) as dead:
        send(broker, jobs)
        assert len(dead.exchange(FAST, [], 5)) == 5
        server.client.zadd("muniment:__heartbeats__", {dead.broker_id: 1})
        broker.sweep()
        assert server.waiting() == 5
        assert server.client.zscore("muniment:__heartbeats__", dead.broker_id) is None
        assert not any("acks" in key for key in server.names())
        # Once in a while for the whole fleet: the next process finds nothing to do.
        server.client.zadd("muniment:__heartbeats__", {dead.broker_id: 1})
        dead.sweep()
        assert server.client.zscore("muniment:__heartbeats__", dead.broker_id) is not None


def test_a_large_backlog_drains_and_memory_returns(server: Redis) -> None:
    """Failure cases D8 and N4, scaled: every one is handled once, and Redis is as small as before."""
    counted, jobs = Seen(), some(20_000)
    with sender(server) as broker:
        broker.send(FAST, TENANT, jobs[0])
        broker.client.flushall()
        before = int(server.client.info("memory")["used_memory_dataset"])
        for start in range(0, len(jobs), 5_000):
            send(broker, jobs[start : start + 5_000])
        full = int(server.client.info("memory")["used_memory_dataset"])
        with running(server, counted, threads=32), running(server, counted, threads=32):
            counted.wait(20_000, 60)
    assert Counter(counted.jobs) == Counter(jobs)
    assert {key for key in server.names() if "sweep" not in key} <= {"muniment:__heartbeats__"}
    assert int(server.client.info("memory")["used_memory_dataset"]) < before + (full - before) / 20
