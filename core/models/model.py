"""What is asked of a model and what comes back: completions, decisions, usage, and the ways in which a call can end badly.

Money is in whole nano-units of the provider's currency (1 USD = 10^9). Times are seconds on `core.clock.monotonic`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from core.budget.model import Spender
from core.errors import DeadlineExceeded, InvalidRequest, ModelUnavailable

__all__ = [
    "Answer", "BadReply", "Call", "Choice", "ChoiceAnswer", "Completed", "Completion", "Cut", "DeadlineExceeded", "Decided",
    "InvalidRequest", "Json", "Message", "ModelRefused", "ModelUnavailable", "Noul", "NoulAnswer", "Question", "Score",
    "ScoreAnswer", "Spender", "Usage",
]  # fmt: skip

Json: TypeAlias = str | int | float | bool | Sequence["Json"] | Mapping[str, "Json"] | None
Criterion: TypeAlias = str | Sequence[Json] | Mapping[str, Json]
"""Instructions and criteria: a text, a list or an object (memory-agent.md §9.1)."""

# Questions --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no, answered with P(yes). `yes` and `no` say what counts as which."""

    instructions: Criterion | None = None
    yes: Criterion | None = None
    no: Criterion | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of at least one label, each with a description or None."""

    criteria: Mapping[str, Criterion | None]
    instructions: Criterion | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """One of at least two levels, from 0; a criterion a level."""

    criteria: Sequence[Criterion]
    instructions: Criterion | None = None


Question: TypeAlias = Noul | Choice | Score


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """`noul`: P(yes), within [0, 1]."""

    noul: float


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """`probabilities` has every label and adds up to 1 ± 0.02; `confidence` within [0, 1], None when not given."""

    choice: str
    probabilities: Mapping[str, float]
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """`score` within [0, levels − 1]; `probabilities` has one entry a level, in order, and adds up to 1 ± 0.02."""

    score: float
    probabilities: Sequence[float]
    confidence: float | None = None


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer

# Calls ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a chat; `role` is system, user or assistant."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion to ask for. `max_tokens` None: the profile's, else 1,024 for free text and 2,048 for JSON.

    `json`: JSON mode; whether the text is what was wanted is the caller's to check. `accept_cut`: a reply that ended at the
    output limit is an answer too (the two planner calls and the rewrite; contract.md)."""

    messages: Sequence[Message]
    max_tokens: int | None = None
    json: bool = False
    accept_cut: bool = False


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Call:
    """For whom and how long. `deadline` on `core.clock.monotonic`: no wait and no attempt starts beyond it.

    `cancelled` is asked a few times a second; once it says True the call ends with Cancelled, and what is under way runs on
    and settles. `cache`: the store's `modelCache`."""

    spender: Spender
    deadline: float | None = None
    cancelled: Callable[[], bool] = _never
    cache: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the attempt that answered used. `cached`: replayed, so nothing was paid now (`cost` is what was paid then).

    Attempts that failed are in the ledger, not here. `provider` is the account, `currency` USD, CNY, or "" when unpaid."""

    provider: str
    input_tokens: int
    output_tokens: int
    cost: int = 0
    currency: str = ""
    cached: bool = False
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Completed:
    """`cut`: the text ended at the output limit (only when the call accepts that). `model`: the reply's own word."""

    text: str
    cut: bool
    usage: Usage
    model: str


@dataclass(frozen=True, slots=True)
class Decided:
    """One answer a question, by the question's key."""

    answers: Mapping[str, Answer]
    usage: Usage
    model: str


# Errors -----------------------------------------------------------------------------------------------------------------
# Besides these: BudgetSpent, InvalidRequest (a limit of the request), DeadlineExceeded, Cancelled. None repeats what was
# sent, what was answered, or a key.


class ModelRefused(ModelUnavailable):
    """The endpoint refused for a reason that no other try changes: `status_code` 401, 402, 403 or another 4xx, or a redirect.

    The detail names the profile and the status."""

    retryable = False

    def __init__(self, detail: str = "", *, status_code: int = 0) -> None:
        super().__init__(detail)
        self.status_code = status_code


class BadReply(ModelUnavailable):
    """A reply came and cannot be used: it does not parse, fails validation, or lacks its metering."""


class Cut(BadReply):
    """The reply ended at the output limit, and the call accepts no such reply. The same request is not sent again."""
