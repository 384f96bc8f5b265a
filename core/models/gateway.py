"""The one way to a model: every call of every process goes through a `Gateway` (architecture.md §5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.models.model import Call, Completed, Completion, Decided, Question
from core.models.profiles import ModelProfile


class Gateway:
    """For any number of threads; `close` ends what still runs. No call holds a database connection while it waits."""

    def complete(self, profile: str | ModelProfile, request: Completion, call: Call) -> Completed:
        """The answer to one completion.

        Raises InvalidRequest, BudgetSpent, ModelUnavailable, ModelRefused, BadReply, Cut, DeadlineExceeded, Cancelled."""
        raise NotImplementedError

    def decide(
        self, profile: str | ModelProfile, state: object, questions: Mapping[str, Question], call: Call
    ) -> Decided:
        """The answers to typed questions about `state` (a text, list or object). Raises as `complete`."""
        raise NotImplementedError
