"""One attempt: reserve, send, read, settle, on a thread of its own, so that it ends well whoever still waits for it.

As many threads as there are places in flight (core/budget/shares.py).
"""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from core import clock
from core.budget.model import Estimate, Reservation, Spender
from core.errors import BudgetSpent, Cancelled, DeadlineExceeded, ModelUnavailable, MunimentError, Unavailable
from core.ids import uuid7
from core.models.circuits import Circuits
from core.models.model import BadReply, Call, Cut, ModelRefused
from core.models.replies import Tokens
from core.models.timing import Timing
from core.models.transport import Lost, NotSent, Raw, TimedOut, Transport
from core.models.waits import retry_after

_log = logging.getLogger(__name__)

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 524, 529})
THROTTLED = 429
START_SECONDS = 60.0
"""An attempt that has its money is sent within this time, or not at all."""
SETTLE_SECONDS = 30.0
"""For the end of an attempt to be written. Until then the relay leaves its reservation to it (sql/functions/ledger.sql)."""

Value = TypeVar("Value")


class Money(Protocol):
    """The ledger (core/budget/ledger.py)."""

    def reserve(
        self, provider: str, estimate: Estimate, spender: Spender, reply_seconds: float = 0.0
    ) -> Reservation: ...
    def settle(
        self, reservation: Reservation, cost: int, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None: ...
    def release(self, reservation: Reservation, outcome: str = "refused") -> None: ...
    def settle_at_estimate(self, reservation: Reservation, outcome: str) -> None: ...
    def count(
        self, provider: str, spender: Spender, input_tokens: int, output_tokens: int, outcome: str = "ok"
    ) -> None: ...


class Observer(Protocol):
    """Metrics. Labels are bounded: no tenant, no job, no profile."""

    def attempt(self, provider: str, spender: Spender, outcome: str, seconds: float) -> None: ...
    def retry(self, provider: str, reason: str) -> None: ...


class Unobserved:
    def attempt(self, provider: str, spender: Spender, outcome: str, seconds: float) -> None:
        """Nothing."""

    def retry(self, provider: str, reason: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What attempts of one process share."""

    transport: Transport
    money: Money
    circuits: Circuits
    timing: Timing
    observe: Observer


@dataclass(frozen=True, slots=True)
class Read(Generic[Value]):
    """What a 2xx reply says: its metering, and its value or why it has none."""

    tokens: Tokens | None
    value: Value | BadReply


@dataclass(frozen=True, slots=True)
class Ask(Generic[Value]):
    """What a call sends each time. `estimate` None: unpaid. `key` is asked for when it is sent and kept nowhere."""

    profile: str
    provider: str
    circuit: str
    url: str
    body: bytes
    key: Callable[[], str]
    estimate: Estimate | None
    cost: Callable[[Tokens], int]
    read: Callable[[bytes], Read[Value]]


@dataclass(frozen=True, slots=True)
class Answered(Generic[Value]):
    """`body`: the reply as it came."""

    value: Value
    tokens: Tokens
    cost: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """`retry`: whether another attempt may do better; `once` for a 200 that cannot be used. `outcome` as in the metrics."""

    outcome: str
    error: MunimentError
    retry: Literal["never", "once", "yes"] = "never"
    retry_after: float | None = None
    unnamed_429: bool = False
    away: bool = False
    """An availability failure: a connection error, a time-out or a 5xx."""


class Attempt(Generic[Value]):
    """`place` is given back when the attempt ends, however it ends. `after`: what it tries again; None: the first."""

    def __init__(
        self, ask: Ask[Value], call: Call, seconds: float, parts: Parts, place: ExitStack, after: Failure | None = None
    ) -> None:
        self.sent_at: float | None = None
        self._ask = ask
        self._call = call
        self._seconds = seconds
        self._parts = parts
        self._place = place
        self._after = after
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._result: Answered[Value] | Failure | None = None
        self._given_up = False
        self._unwanted = False

    def start(self) -> None:
        thread = threading.Thread(target=self._run, name="model-call", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._place.close()
            raise

    def ended(self, seconds: float) -> Answered[Value] | Failure | None:
        """The result, if it comes within that time."""
        return self._result if self._done.wait(seconds) else None

    def time_out(self) -> Answered[Value] | Failure:
        """Gives up on the reply, unless it came just now. The request runs on."""
        with self._lock:
            if self._result is not None:
                return self._result
            self._given_up = True
        self._parts.circuits.failed(self._ask.circuit)
        self._observe("timeout", self.sent_at)
        return Failure("timeout", self._unavailable("did not answer in time"), "yes", away=True)

    def forget(self) -> None:
        """Nobody waits any more: what was not sent yet need not be."""
        self._unwanted = True

    # On the attempt's thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        began = self._parts.timing.monotonic()
        try:
            with self._place:
                result = self._sent()
        except MunimentError as error:  # nothing was sent
            result = Failure(_unsent(error), error)
        except Exception as error:
            _log.exception("an attempt of profile %s met an error of ours", self._ask.profile)
            result = Failure("error", ModelUnavailable(f"profile {self._ask.profile}: {type(error).__name__}"))
        with self._lock:
            self._result = result
        self._done.set()
        if not self._counted():
            self._observe(result.outcome if isinstance(result, Failure) else "ok", self.sent_at or began)

    def _observe(self, outcome: str, began: float | None) -> None:
        now = self._parts.timing.monotonic()
        self._parts.observe.attempt(self._ask.provider, self._call.spender, outcome, now - (began or now))

    def _sent(self) -> Answered[Value] | Failure:
        """Raises what keeps the attempt from being sent; the reservation is then released."""
        ask, parts, call = self._ask, self._parts, self._call
        asked_at = clock.monotonic()
        purse = _Purse(ask, call.spender, parts.money, self._seconds + START_SECONDS + SETTLE_SECONDS)
        try:
            key = ask.key()
            if self._unwanted:
                raise Cancelled("nobody waits for the model any more")
            if call.deadline is not None and parts.timing.monotonic() >= call.deadline:
                raise DeadlineExceeded("the deadline passed before the model was asked")
            self._take_retry()
            trial = parts.circuits.admit(ask.circuit)
            if clock.monotonic() > asked_at + START_SECONDS:
                raise Unavailable("too much time passed between setting money aside and asking the model")
        except BaseException:
            purse.free("not-sent")
            raise
        self.sent_at = parts.timing.monotonic()
        try:
            return self._ended(purse, key, trial)
        finally:
            # Whatever else went wrong: it was sent, so it may have been billed.
            if not purse.closed:
                purse.guess("lost")

    def _take_retry(self) -> None:
        """Now, not before it waited for its place: else retries that waited together would start together."""
        if self._after is None:
            return
        taken = self._parts.circuits.take_retry(self._ask.circuit)
        self._parts.observe.retry(self._ask.provider, self._after.outcome if taken else "budget")
        if not taken:
            raise self._after.error

    def _ended(self, purse: "_Purse[Value]", key: str, trial: bool) -> Answered[Value] | Failure:
        """The money first: what the fleet is told comes after, and may fail."""
        ask, parts = self._ask, self._parts
        try:
            raw = parts.transport.post(ask.url, ask.body, key, self._seconds, purse.request_id)
        except NotSent:
            purse.free("unreachable")
            return self._away(Failure("unreachable", self._unavailable("cannot be reached"), "yes", away=True))
        except Lost as error:
            outcome = "timeout" if isinstance(error, TimedOut) else "lost"
            purse.guess(outcome)
            why = "did not answer in time" if isinstance(error, TimedOut) else "broke off"
            return self._away(Failure(outcome, self._unavailable(why), "yes", away=True))
        if raw.status // 100 == 2:
            result = self._replied(raw, purse)
            self._heard(trial)
            return result
        failure = self._refused(raw)
        purse.free(failure.outcome)
        if failure.away:
            return self._away(failure)
        self._heard(trial)
        return failure

    def _replied(self, raw: Raw, purse: "_Purse[Value]") -> Answered[Value] | Failure:
        try:
            read = self._ask.read(raw.body)
        except Exception:
            purse.guess("unparsable")
            raise
        value, tokens = read.value, read.tokens
        if isinstance(value, Cut):
            purse.pay(tokens, "cut")
            return Failure("cut", self._bad(value))
        if isinstance(value, BadReply):
            purse.pay(tokens, "unparsable")
            return Failure("unparsable", self._bad(value), "once")
        if tokens is None:
            purse.guess("unmetered")
            return Failure("unmetered", self._bad(BadReply("the reply has no metering")), "once")
        return Answered(value, tokens, purse.pay(tokens, "ok"), raw.body)

    def _refused(self, raw: Raw) -> Failure:
        status, detail = raw.status, f"profile {self._ask.profile}: the endpoint answered {raw.status}"
        named = retry_after(raw.headers, self._parts.timing.now())
        shown = None if named is None else max(1, round(named))
        if status == THROTTLED:
            error = ModelUnavailable(detail, retry_after=shown)
            return Failure("throttled", error, "yes", named, unnamed_429=named is None)
        if status >= 500 or status in RETRIED:
            error = ModelUnavailable(detail, retry_after=shown)
            again = "yes" if status in RETRIED else "never"
            return Failure("failed", error, again, named, away=status >= 500)
        _log.warning("%s: no other try will do better", detail)
        return Failure("refused", ModelRefused(detail, status_code=status))

    def _away(self, failure: Failure) -> Failure:
        if not self._counted():
            self._parts.circuits.failed(self._ask.circuit)
        return failure

    def _heard(self, trial: bool) -> None:
        if not self._counted():
            self._parts.circuits.answered(self._ask.circuit, trial=trial)

    def _counted(self) -> bool:
        """Whether it was counted as timed out already: then it is no news, however it ends."""
        with self._lock:
            return self._given_up

    def _unavailable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(f"profile {self._ask.profile}: the endpoint {why}")

    def _bad(self, error: BadReply) -> BadReply:
        return type(error)(f"profile {self._ask.profile}: {error.detail}")


class _Purse(Generic[Value]):
    """The money of one attempt: each attempt reserves and settles on its own; an unpaid one is counted."""

    def __init__(self, ask: Ask[Value], spender: Spender, money: Money, reply_seconds: float) -> None:
        """Raises BudgetSpent, Unavailable."""
        self._ask = ask
        self._spender = spender
        self._money = money
        self._held: Reservation | None = None
        self.closed = False
        if ask.estimate is not None:
            self._held = money.reserve(ask.provider, ask.estimate, spender, reply_seconds)
        self.request_id = str(uuid7() if self._held is None else self._held.entry_id)

    def free(self, outcome: str) -> None:
        """It cost nothing: it was not sent, or it was refused."""
        self.closed = True
        if self._held is None:
            self._count(None, outcome)
        else:
            self._money.release(self._held, outcome)

    def guess(self, outcome: str) -> None:
        """It may have been billed: its input is taken for its cost."""
        self.closed = True
        if self._held is None:
            self._count(None, outcome)
        else:
            self._money.settle_at_estimate(self._held, outcome)

    def pay(self, tokens: Tokens | None, outcome: str) -> int:
        """What the meter says, if it says something."""
        if tokens is None:
            self.guess(outcome)
            return 0
        cost = self._ask.cost(tokens)
        self.closed = True
        if self._held is None:
            self._count(tokens, outcome)
            return 0
        self._money.settle(self._held, cost, tokens.input, tokens.output, outcome)
        return cost

    def _count(self, tokens: Tokens | None, outcome: str) -> None:
        found = tokens or Tokens(0, 0)
        try:
            self._money.count(self._ask.provider, self._spender, found.input, found.output, outcome)
        except Unavailable as error:
            _log.warning("an unpaid call was not counted: %s", error)


def _unsent(error: MunimentError) -> str:
    """A cap that is a tenant's, a store's or a job's own is no business of the operator's."""
    if not isinstance(error, BudgetSpent):
        return "not-sent"
    return "budget-spent" if error.cap in ("", "provider") else "cap-spent"
