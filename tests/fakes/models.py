"""A gateway without a database, a clock that a test moves, and a purse that remembers: for tests of model calls alone."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from core import clock
from core.budget.model import CallClass, Estimate, Reservation, Spender
from core.ids import uuid7
from core.models.attempt import Observer, Parts
from core.models.catalogue import Named
from core.models.circuits import Circuits
from core.models.embedders import Embedders
from core.models.embedding import BUILTIN, EmbeddingRefused, Profile
from core.models.gateway import Gateway
from core.models.model import Call, ModelRefused
from core.models.profiles import ModelProfile
from core.models.timing import Timing
from core.models.transport import Transport

TENANT, STORE = UUID(int=1), UUID(int=2)


def spender(call_class: CallClass = "read", stage: str = "judge") -> Spender:
    return Spender(TENANT, STORE, None, stage, call_class)


def call(call_class: CallClass = "read", **more: Any) -> Call:
    return Call(spender(call_class), **more)


class Clock:
    """Real time plus what was skipped: sleeping skips, and is remembered. `dice`: what `random` gives next, else 1."""

    def __init__(self, *dice: float) -> None:
        self.skipped = 0.0
        self.slept: list[float] = []
        self.dice = list(dice)
        self.asleep: Callable[[float], None] = lambda seconds: None
        """Called before each sleep."""

    def monotonic(self) -> float:
        return clock.monotonic() + self.skipped

    def now(self) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=self.skipped)

    def skip(self, seconds: float) -> None:
        self.skipped += seconds

    def sleep(self, seconds: float, stop: Callable[[], bool]) -> None:
        self.asleep(seconds)
        self.slept.append(seconds)
        if not stop():
            self.skip(seconds)

    def random(self) -> float:
        return self.dice.pop(0) if self.dice else 1.0

    @property
    def timing(self) -> Timing:
        return Timing(self.monotonic, self.now, self.sleep, self.random)


@dataclass
class Purse:
    """Stands in for the ledger: what became of each reservation, in order. `refuses`: raised by the next `reserve`."""

    ended: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """(settled | released | estimated | counted, outcome, nano-units)."""
    open: int = 0
    tokens: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    refuses: Exception | None = None
    reserved: list[Estimate] = field(default_factory=list[Estimate])
    reply_seconds: list[float] = field(default_factory=list[float])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, provider: str, estimate: Estimate, spender: Spender, reply_seconds: float = 0.0) -> Reservation:
        with self._lock:
            if self.refuses is not None:
                raise self.refuses
            self.open += 1
            self.reserved.append(estimate)
            self.reply_seconds.append(reply_seconds)
        return Reservation(uuid7(), provider, spender, estimate)

    def settle(
        self, reservation: Reservation, cost: int, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        del reservation
        self._end("settled", outcome, cost, (input_tokens, output_tokens))

    def release(self, reservation: Reservation, outcome: str = "refused") -> None:
        del reservation
        self._end("released", outcome, 0, (0, 0))

    def settle_at_estimate(self, reservation: Reservation, outcome: str) -> None:
        self._end("estimated", outcome, reservation.estimate.input, (0, 0))

    def count(
        self, provider: str, spender: Spender, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None:
        del provider, spender
        with self._lock:
            self.ended.append(("counted", outcome, 0))
            self.tokens.append((input_tokens, output_tokens))

    def _end(self, how: str, outcome: str, cost: int, tokens: tuple[int, int]) -> None:
        with self._lock:
            self.open -= 1
            self.ended.append((how, outcome, cost))
            self.tokens.append(tokens)


class NoLimits:
    def slot(
        self, provider: str, call_class: str, deadline: float | None, cancelled: Callable[[], bool]
    ) -> AbstractContextManager[None]:
        del provider, call_class, deadline, cancelled
        return nullcontext()


class Given:
    """Profiles by name, granted to everyone; `builtin` is among them."""

    def __init__(self, profiles: Mapping[str, Profile | ModelProfile]) -> None:
        self._profiles = {"builtin": BUILTIN, **profiles}

    def model(self, tenant_id: UUID, named: Named) -> ModelProfile:
        del tenant_id
        found = self._profiles.get(str(named))
        if not isinstance(found, ModelProfile):
            raise ModelRefused(f"no model profile {named!r} is granted to this tenant")
        return found

    def embedding(self, tenant_id: UUID, named: Named) -> Profile:
        del tenant_id
        found = self._profiles.get(str(named))
        if not isinstance(found, Profile):
            raise EmbeddingRefused(f"there is no embedding profile {named!r} for this tenant")
        return found


@dataclass
class Seen:
    """An observer that remembers (provider, outcome) of attempts and (provider, reason) of retries."""

    attempts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    retries: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def attempt(self, provider: str, spender: Spender, outcome: str, seconds: float) -> None:
        del spender, seconds
        self.attempts.append((provider, outcome))

    def retry(self, provider: str, reason: str) -> None:
        self.retries.append((provider, reason))


@dataclass(frozen=True)
class Alone:
    """A gateway of its own process, and what it shares."""

    gateway: Gateway
    clock: Clock
    purse: Purse
    circuits: Circuits
    seen: Seen


@contextmanager
def alone(
    profiles: Mapping[str, Profile | ModelProfile] | None = None,
    *,
    dice: Sequence[float] = (),
    keys: Mapping[str, str] | None = None,
    silence: float = 60.0,
    slots: Any = None,
    observe: Observer | None = None,
) -> Iterator[Alone]:
    """`keys`: by the name of their variable."""
    moving, purse, seen = Clock(*dice), Purse(), Seen()
    circuits = Circuits(moving.timing)
    parts = Parts(Transport(moving.monotonic, silence), purse, circuits, moving.timing, observe or seen)
    gateway = Gateway(parts, slots or NoLimits(), Given(profiles or {}), dict(keys or {}).__getitem__)
    try:
        yield Alone(gateway, moving, purse, circuits, seen)
    finally:
        gateway.close()


@contextmanager
def embedders_alone(profiles: Mapping[str, Profile] | None = None, **keys: str) -> Iterator[Embedders]:
    with alone(profiles, keys=keys) as opened:
        yield Embedders(Given(profiles or {}), opened.gateway)
