"""How the API's loop hears one channel: every way a URL may ask for, messages of any size, and connections that end."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import uvloop

from api import answers
from api.answers import Waiter
from api.subscription import READ_BYTES, READS, Subscription
from tests.conftest import TestDatabase
from tests.fakes.proxy import Proxy
from tests.services import short_folder

CHANNEL = "tests:subscription"
SECONDS = 10.0


def in_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not look():
            await asyncio.sleep(0.005)


class Heard:
    """What a subscription told."""

    def __init__(self) -> None:
        self.kinds: list[bytes] = []
        self.messages: list[bytes] = []

    def __call__(self, kind: bytes, data: Any) -> None:
        self.kinds.append(kind)
        if kind == b"message":
            self.messages.append(data)


@asynccontextmanager
async def front(redis_url: str, folder: Path, context: ssl.SSLContext | None) -> AsyncIterator[Path | int]:
    """Passes on to Redis: from a port that speaks TLS, or else from a socket's path."""
    target = urlsplit(redis_url)

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other, back = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pump(reader, back), pump(other, writer), return_exceptions=True)

    path = folder / "redis"
    if context is None:
        server = await asyncio.start_unix_server(meet, path)
    else:
        server = await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context)
    try:
        yield path if context is None else server.sockets[0].getsockname()[1]
    finally:
        server.close()


def certificate(folder: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: it makes the test's certificate")
    key, found = folder / "key.pem", folder / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*request, "-keyout", key, "-out", found], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found, key)
    return context


@pytest.mark.parametrize("way", ["plain", "resp2", "resp3", "unix", "tls"])
def test_each_way_to_redis_brings_every_message(redis_url: str, way: str) -> None:
    sent = [str(n).encode() + b" " * (n % 7) for n in range(2_000)]
    sent += [b"x" * READ_BYTES * 2, b"", b"\x00\xff\r\n", b"y" * 40_000]

    async def hear(url: str) -> None:
        heard = Heard()
        subscription = await Subscription.open(url, CHANNEL, SECONDS, heard)
        try:
            await until(lambda: heard.kinds)
            await asyncio.to_thread(publish, redis_url, sent)
            await until(lambda: len(heard.messages) >= len(sent) or subscription.lost.done())
            assert not subscription.lost.done()
        finally:
            subscription.close()
        assert heard.messages == sent
        assert heard.kinds[0] == b"subscribe"

    async def run() -> None:
        password = urlsplit(redis_url).password
        with short_folder() as folder:
            if way in ("unix", "tls"):
                async with front(redis_url, folder, certificate(folder) if way == "tls" else None) as at:
                    place = f"127.0.0.1:{at}/0?ssl_cert_reqs=none" if way == "tls" else f"{at}?db=0"
                    await hear(f"{'rediss' if way == 'tls' else 'unix'}://:{password}@{place}")
                    await asyncio.sleep(0)
            else:
                await hear(redis_url if way == "plain" else f"{redis_url}?protocol={way[-1]}")

    in_loop(run)


def publish(redis_url: str, messages: list[bytes]) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=SECONDS) as client:
        for message in messages:
            client.publish(CHANNEL, message)


def test_a_flood_leaves_turns_of_the_loop_to_others(redis_url: str) -> None:
    count = 2 * READS  # each as long as what is read at once

    async def run() -> None:
        heard, turns = Heard(), 0
        subscription = await Subscription.open(redis_url, CHANNEL, SECONDS, heard)
        await until(lambda: heard.kinds)
        sending = asyncio.get_running_loop().run_in_executor(None, publish, redis_url, [b"x" * READ_BYTES] * count)
        async with asyncio.timeout(SECONDS):
            while len(heard.messages) < count:
                await asyncio.sleep(0)
                turns += 1
        await sending
        subscription.close()
        assert turns > 2

    in_loop(run)


def test_what_ends_a_connection_is_told(redis_url: str) -> None:
    async def run() -> None:
        subscription = await Subscription.open(redis_url, CHANNEL, SECONDS, Heard())
        with redis.Redis.from_url(redis_url, socket_timeout=SECONDS) as client:
            await until(lambda: client.client_kill_filter(_type="pubsub"))
        async with asyncio.timeout(SECONDS):
            assert isinstance(await subscription.lost, (redis.ConnectionError, OSError))
        subscription.close()

        wrong = redis_url.replace(urlsplit(redis_url).password or "", "wrong")
        with pytest.raises(redis.AuthenticationError):
            await Subscription.open(wrong, CHANNEL, SECONDS, Heard())
        with pytest.raises(redis.ConnectionError):
            await Subscription.open("redis://127.0.0.1:1/0", CHANNEL, SECONDS, Heard())

    in_loop(run)


def test_a_refusal_to_subscribe_is_told(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url, socket_timeout=SECONDS) as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">secret", "resetchannels", "+@all")
        try:
            at = urlsplit(redis_url)

            async def run() -> None:
                url = f"redis://deaf:secret@{at.hostname}:{at.port}/0"
                subscription = await Subscription.open(url, CHANNEL, SECONDS, Heard())
                async with asyncio.timeout(SECONDS):
                    assert "permission" in str(await subscription.lost)
                subscription.close()

            in_loop(run)
        finally:
            client.execute_command("ACL", "DELUSER", "deaf")


def pings(redis_url: str) -> int:
    with redis.Redis.from_url(redis_url, socket_timeout=SECONDS) as client:
        untyped: Any = client
        return untyped.info("commandstats").get("cmdstat_ping", {}).get("calls", 0)


def test_a_connection_that_says_nothing_is_pinged_and_then_given_up(
    database: TestDatabase, redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(answers, "QUIET_SECONDS", 0.2)
    at = urlsplit(redis_url)
    assert at.port is not None

    async def run(proxy: Proxy) -> None:
        waiter = Waiter(database.app, f"redis://:{at.password}@127.0.0.1:{proxy.port}/0")
        await waiter.start()
        try:
            assert waiter.listening
            asked = pings(redis_url)
            await until(lambda: pings(redis_url) >= asked + 3)
            assert waiter.listening
            assert not caplog.records
            proxy.freeze()
            await until(lambda: not waiter.listening)
            await until(lambda: waiter.listening)  # by a new connection
        finally:
            await waiter.stop()
        assert [record.message for record in caplog.records] == [
            "answers: Redis is lost, rows are polled: TimeoutError: no answer to a ping",
            "answers: Redis is back",
        ]

    with Proxy(at.port) as proxy:
        in_loop(lambda: run(proxy))
