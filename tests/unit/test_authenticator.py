"""The cache of keys: how often the database is asked, and that bad keys do not get in the way of good ones."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from api import auth
from api.auth import Authenticator
from core.errors import QuotaExceeded, Unauthenticated, Unavailable
from core.ids import token, uuid7
from core.tenants import quotas
from core.tenants.keys import Principal, hash_key
from core.tenants.tenants import Limits


def make_key() -> str:
    return f"mun_{token()}"


def principal(rate: int | None = None) -> Principal:
    return Principal(uuid7(), uuid7(), frozenset({"read"}), None, Limits(1, 10, 10, None, rate))


class Book:
    """A look-up that counts and may be held up."""

    def __init__(self) -> None:
        self.good: dict[bytes, Principal] = {}
        self.asked: list[bytes] = []
        self.open = threading.Event()
        self.open.set()
        self.threads: set[int] = set()
        self.error: Exception | None = None

    def __call__(self, key_hash: bytes) -> Principal | None:
        self.threads.add(threading.get_ident())
        self.asked.append(key_hash)
        assert self.open.wait(10)
        if self.error is not None:
            raise self.error
        return self.good.get(key_hash)

    def add(self, rate: int | None = None) -> str:
        secret = make_key()
        self.good[hash_key(secret)] = principal(rate)
        return secret


@contextmanager
def authenticator(book: Book, seconds: float = 5.0) -> Iterator[Callable[[str], asyncio.Task[Principal]]]:
    made = Authenticator(book, seconds)
    try:
        yield lambda secret: asyncio.ensure_future(made.principal(f"Bearer {secret}"))
    finally:
        book.open.set()
        made.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    for module in (auth, quotas):
        monkeypatch.setattr(module, "monotonic", lambda: moment[0])
    return moment


def test_a_revoked_key_is_forgotten_at_once_and_no_look_up_from_before_counts() -> None:
    book = Book()
    revoked, other = book.add(), book.add()
    made = Authenticator(book, 60.0)

    async def run() -> None:
        for secret in (revoked, other):
            await made.principal(f"Bearer {secret}")
        key_id = book.good[hash_key(revoked)].key_id
        late = book.add()
        book.open.clear()
        flying = asyncio.ensure_future(made.principal(f"Bearer {late}"))  # read before the revocation, lands after it
        while hash_key(late) not in book.asked:
            await asyncio.sleep(0.001)
        late_id = book.good[hash_key(late)].key_id
        for gone in (key_id, late_id):
            made.forget(gone)
        book.open.set()
        await flying
        del book.good[hash_key(revoked)], book.good[hash_key(late)]
        asked = len(book.asked)
        assert (await made.principal(f"Bearer {other}")).key_id == book.good[hash_key(other)].key_id
        assert len(book.asked) == asked, "another key was forgotten too"
        for secret in (revoked, late):
            with pytest.raises(Unauthenticated):
                await made.principal(f"Bearer {secret}")

    try:
        asyncio.run(run())
    finally:
        book.open.set()
        made.close()


def test_a_good_key_is_looked_up_once_a_period(clock: list[float]) -> None:
    async def run() -> None:
        book = Book()
        secret = book.add()
        with authenticator(book) as ask:
            for _ in range(3):
                assert await ask(secret) == book.good[hash_key(secret)]
            assert len(book.asked) == 1
            clock[0] += 5.1
            del book.good[hash_key(secret)]  # revoked
            with pytest.raises(Unauthenticated):
                await ask(secret)
            assert len(book.asked) == 2

    asyncio.run(run())


def test_a_bad_key_is_looked_up_once_a_period(clock: list[float]) -> None:
    async def run() -> None:
        book = Book()
        secret = make_key()
        with authenticator(book) as ask:
            for _ in range(3):
                with pytest.raises(Unauthenticated):
                    await ask(secret)
            assert len(book.asked) == 1
            clock[0] += 5.1
            with pytest.raises(Unauthenticated):
                await ask(secret)
            assert len(book.asked) == 2

    asyncio.run(run())


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer mun_short", "Basic bXVuOng=", "mun_" + "a" * 43, "Bearer mun_" + "ä" * 43,
     "Bearer  mun_" + "a" * 43, "Bearer mun_" + "a" * 44, "Bearer mun_" + "a" * 43 + "\n"],
)  # fmt: skip
def test_what_is_no_key_never_reaches_the_database(header: str | None) -> None:
    async def run() -> None:
        book = Book()
        made = Authenticator(book, 5)
        with pytest.raises(Unauthenticated):
            await made.principal(header)
        made.close()
        assert book.asked == []

    asyncio.run(run())


def test_simultaneous_requests_share_one_look_up() -> None:
    async def run() -> None:
        book = Book()
        secret = book.add()
        with authenticator(book) as ask:
            book.open.clear()
            waiting = [ask(secret) for _ in range(50)]
            await until(lambda: book.asked)
            book.open.set()
            assert len(set(await asyncio.gather(*waiting))) == 1
            assert len(book.asked) == 1

    asyncio.run(run())


def test_a_client_that_goes_away_takes_nobody_along() -> None:
    async def run() -> None:
        book = Book()
        secret = book.add()
        with authenticator(book) as ask:
            book.open.clear()
            first, second = ask(secret), ask(secret)
            await until(lambda: book.asked)
            first.cancel()
            await until(first.done)
            book.open.set()
            assert await second == book.good[hash_key(secret)]

    asyncio.run(run())


def test_good_keys_are_answered_while_500_bad_ones_wait(clock: list[float]) -> None:
    """M13. The flood holds one thread; keys that were good before have another, and cached ones need none."""

    async def run() -> None:
        book = Book()
        cached, expired = book.add(), book.add()
        with authenticator(book) as ask:
            await ask(expired)
            clock[0] += 3
            await ask(cached)
            clock[0] += 3
            stopped = threading.Event()
            good = dict(book.good)
            book.good = _Gate(good, stopped)
            flood = [ask(make_key()) for _ in range(500)]
            await until(lambda: len(book.asked) > 2)
            assert await asyncio.wait_for(ask(cached), 1) == good[hash_key(cached)]
            assert await asyncio.wait_for(ask(expired), 1) == good[hash_key(expired)]
            assert not any(task.done() for task in flood)
            stopped.set()
            outcomes = await asyncio.gather(*flood, return_exceptions=True)
            assert all(isinstance(outcome, Unauthenticated) for outcome in outcomes)
            assert len(book.threads) <= 2

    asyncio.run(run())


class _Gate(dict[bytes, Principal]):
    """Unknown keys wait until `opened`."""

    def __init__(self, good: dict[bytes, Principal], opened: threading.Event) -> None:
        super().__init__(good)
        self._opened = opened

    def get(self, key: bytes, default: Principal | None = None) -> Principal | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if key in self:
            return self[key]
        assert self._opened.wait(10)
        return default


def test_more_than_may_wait_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "WAITING", 3)

    async def run() -> None:
        book = Book()
        with authenticator(book) as ask:
            book.open.clear()
            waiting = [ask(make_key()) for _ in range(3)]
            await until(lambda: book.asked)
            with pytest.raises(Unavailable) as refused:
                await ask(make_key())
            assert refused.value.retry_after == 1
            book.open.set()
            assert all(isinstance(e, Unauthenticated) for e in await asyncio.gather(*waiting, return_exceptions=True))

    asyncio.run(run())


def test_a_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "LOOKUP_SECONDS", 0.05)

    async def run() -> None:
        book = Book()
        with authenticator(book) as ask:
            book.open.clear()
            with pytest.raises(Unavailable, match="in time"):
                await ask(make_key())

    asyncio.run(run())


def test_a_failed_look_up_is_not_remembered() -> None:
    async def run() -> None:
        book = Book()
        secret = book.add()
        with authenticator(book) as ask:
            book.error = Unavailable("Postgres: gone")
            with pytest.raises(Unavailable, match="gone"):
                await ask(secret)
            book.error = None
            assert await ask(secret) == book.good[hash_key(secret)]

    asyncio.run(run())


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "KEYS", 5)

    async def run() -> None:
        book = Book()
        first = book.add()
        with authenticator(book) as ask:
            await ask(first)
            for _ in range(20):  # bad keys do not push good ones out
                with pytest.raises(Unauthenticated):
                    await ask(make_key())
            await ask(first)
            assert book.asked.count(hash_key(first)) == 1
            for _ in range(5):
                await ask(book.add())
            await ask(first)
            assert book.asked.count(hash_key(first)) == 2

    asyncio.run(run())


def test_requests_a_second_are_limited_by_tenant(clock: list[float]) -> None:
    async def run() -> None:
        book = Book()
        slow, free = book.add(rate=2), book.add()
        with authenticator(book) as ask:
            await ask(slow)
            await ask(slow)
            with pytest.raises(QuotaExceeded) as refused:
                await ask(slow)
            assert refused.value.retry_after == 1
            for _ in range(20):
                await ask(free)
            clock[0] += 0.5
            await ask(slow)
            with pytest.raises(QuotaExceeded):
                await ask(slow)

    asyncio.run(run())


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)
