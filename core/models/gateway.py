"""The one way to a model: every call of every process goes through a `Gateway` (architecture.md §5).

It encodes and checks a request, replays a recorded reply if there is one, else makes attempts (core/models/attempts.py), and
believes only a reply that holds what was asked for. A paid reply without its metering is no answer.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from core.budget import estimate as pricing
from core.errors import InvalidRequest, ModelUnavailable
from core.jsontext import dumps
from core.models import embedding, judging, replies, requests, served
from core.models.attempt import Ask, Parts, Read
from core.models.attempts import Attempts, Policy, Slots, policy_of
from core.models.catalogue import Named
from core.models.embedding import EmbeddingRefused, EmbeddingUnavailable, Purpose, Vectors
from core.models.model import (
    Answer,
    BadReply,
    Call,
    Completed,
    Completion,
    DeadlineExceeded,
    Decided,
    ModelRefused,
    Question,
    Usage,
)
from core.models.profiles import ModelProfile, host_of
from core.models.replay import Recorded, Replay, key_of
from core.models.replies import Tokens
from core.models.requests import Encoded
from core.settings import SettingsError

_log = logging.getLogger(__name__)

EMBEDDING = "embedding"
"""What embedding servers are counted as: unpaid."""
DOCUMENTS = Policy(attempts=1, timeout=120.0, whole=120.0)
"""A batch on a slow machine takes its time. What fails is the job's to try again: retries never multiply."""
QUERY = Policy(attempts=1, timeout=5.0, whole=5.0)
"""Someone waits, and words alone answer too."""

Value = TypeVar("Value")


class Granted(Protocol):
    """Who may use which profile (core/models/catalogue.py)."""

    def model(self, tenant_id: UUID, named: Named) -> ModelProfile: ...


class Gateway:
    """For any number of threads. No call holds a database connection while it waits for a model."""

    def __init__(
        self, parts: Parts, slots: Slots, profiles: Granted, keys: Callable[[str], str], replay: Replay | None = None
    ) -> None:
        """`keys`: the secret of a variable (core/settings.py). `replay` None: model caches are not allowed here."""
        self._parts = parts
        self._attempts = Attempts(parts, slots)
        self._profiles = profiles
        self._keys = keys
        self._replay = replay

    def complete(self, profile: Named | ModelProfile, request: Completion, call: Call) -> Completed:
        """The answer to one completion.

        Raises InvalidRequest, BudgetSpent, ModelUnavailable, ModelRefused, BadReply, Cut, DeadlineExceeded, Cancelled, and
        Unavailable when the ledger cannot be reached."""
        model = self._model(profile, call)
        if model.decides:
            raise InvalidRequest.field("profile", f"{model.name} answers questions only: name one that completes")
        encoded = requests.completion(model, request)

        def value(reply: Mapping[str, Any]) -> Completed:
            text, cut = replies.completed(reply, structured=request.json, accept_cut=request.accept_cut)
            return Completed(text, cut, _NOTHING, replies.model_of(reply) or model.model)

        answered, usage = self._asked(model, encoded, value, call)
        return Completed(answered.text, answered.cut, usage, answered.model)

    def decide(
        self, profile: Named | ModelProfile, state: object, questions: Mapping[str, Question], call: Call
    ) -> Decided:
        """The answers to typed questions about `state` (a text, list or object). Raises as `complete`."""
        model = self._model(profile, call)
        if model.decides:
            encoded = requests.decision(model, state, questions)
        else:
            encoded = requests.completion(model, judging.request(state, questions))

        def value(reply: Mapping[str, Any]) -> Decided:
            answers: dict[str, Answer]
            if model.decides:
                answers = replies.decided(reply, questions)
            else:
                answers = judging.answers(replies.completed(reply, structured=True, accept_cut=False)[0], questions)
            return Decided(answers, _NOTHING, replies.model_of(reply) or model.model)

        answered, usage = self._asked(model, encoded, value, call)
        return Decided(answered.answers, usage, answered.model)

    def embed(self, profile: embedding.Profile, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        """The vectors of at most 64 texts from a served profile. A query is waited for less patiently.

        Raises EmbeddingUnavailable, EmbeddingRefused, embedding.BadReply, DeadlineExceeded, Cancelled."""
        url = served.address(profile)
        ask: Ask[Vectors] = Ask(
            profile=profile.name,
            provider=EMBEDDING,
            circuit=f"{EMBEDDING} {host_of(url)}",
            url=url,
            body=dumps(served.body(profile, texts)).encode(),
            key=self._key_of(profile.name, profile.key_env),
            estimate=None,
            cost=lambda _: 0,
            read=lambda body: _read(
                body, lambda reply: served.vectors(profile, reply, len(texts)), lambda reply: served.tokens(reply)
            ),
        )
        own = call
        if purpose == "query":
            # Also for a place in flight nobody waits longer than that.
            soon = self._parts.timing.monotonic() + QUERY.whole
            own = replace(call, deadline=soon if call.deadline is None else min(soon, call.deadline))
        try:
            return self._attempts.run(ask, own, QUERY if purpose == "query" else DOCUMENTS).value
        except DeadlineExceeded as error:
            if own.deadline == call.deadline:
                raise
            raise EmbeddingUnavailable(
                f"profile {profile.name}: the embedding server had no time for a query"
            ) from error
        except ModelRefused as error:
            raise EmbeddingRefused(f"{error.detail}: check the profile's url, model and key") from error
        except BadReply as error:
            raise embedding.BadReply(error.detail) from error
        except ModelUnavailable as error:
            raise EmbeddingUnavailable(error.detail, retry_after=error.retry_after) from error

    def close(self, seconds: float = 5.0) -> None:
        """Waits so long for attempts that still run on. What is in flight then is settled by the relay at its estimate, once
        this process's lease has run out."""
        if self._attempts.drain(seconds):
            self._parts.transport.close()
        else:
            _log.warning("calls to models were still in flight; the relay settles them")

    def _model(self, profile: Named | ModelProfile, call: Call) -> ModelProfile:
        if isinstance(profile, ModelProfile):
            return profile
        return self._profiles.model(call.spender.tenant_id, profile)

    def _asked(
        self, model: ModelProfile, encoded: Encoded, value: Callable[[Mapping[str, Any]], Value], call: Call
    ) -> tuple[Value, Usage]:
        def metered(reply: Mapping[str, Any]) -> Tokens | None:
            return replies.tokens(reply, system_one=model.decides) or (None if model.paid else Tokens(0, 0))

        def read(body: bytes) -> Read[Value]:
            return _read(body, value, metered)

        replay = self._replay if call.cache is not None else None
        key = b"" if replay is None else key_of(model, encoded.body)
        if replay is not None and call.cache is not None:
            recorded = replay.find(call.spender.tenant_id, call.cache, key)
            known = None if recorded is None else read(recorded.reply)
            if (
                recorded is not None
                and known is not None
                and known.tokens is not None
                and not isinstance(known.value, BadReply)
            ):
                self._parts.money.count(model.kind, call.spender, known.tokens.input, known.tokens.output, "cached")
                return known.value, _usage(model, known.tokens, recorded.cost, cached=True)
        answered = self._attempts.run(self._ask(model, encoded, read), call, policy_of(model, call.spender.call_class))
        if replay is not None and call.cache is not None:
            replay.keep(call.spender.tenant_id, call.cache, key, model.kind, Recorded(answered.body, answered.cost))
        return answered.value, _usage(model, answered.tokens, answered.cost, cached=False)

    def _ask(self, model: ModelProfile, encoded: Encoded, read: Callable[[bytes], Read[Value]]) -> Ask[Value]:
        estimate = None
        if model.paid:
            estimate = pricing.estimate(model.kind, model, len(encoded.body), encoded.output_limit)
        return Ask(
            profile=model.name,
            provider=model.kind,
            circuit=model.circuit,
            url=model.endpoint,
            body=encoded.body,
            key=self._key_of(model.name, model.key_env),
            estimate=estimate,
            cost=lambda tokens: pricing.cost(model, tokens.input, tokens.output) if model.paid else 0,
            read=read,
        )

    def _key_of(self, profile: str, key_env: str) -> Callable[[], str]:
        def key() -> str:
            try:
                return self._keys(key_env) if key_env else ""
            except SettingsError as error:
                raise ModelRefused(f"profile {profile}: {error.detail}") from None

        return key


_NOTHING = Usage("", 0, 0)


def _usage(model: ModelProfile, tokens: Tokens, cost: int, *, cached: bool) -> Usage:
    return Usage(model.kind, tokens.input, tokens.output, cost, model.currency, cached)


def _read(
    body: bytes, value: Callable[[Mapping[str, Any]], Value], metered: Callable[[Mapping[str, Any]], Tokens | None]
) -> Read[Value]:
    """The metering is read first: what a reply cost is known even when it cannot be used (failure-cases.md S12)."""
    try:
        reply = replies.decoded(body)
    except BadReply as error:
        return Read(None, error)
    tokens = metered(reply)
    try:
        return Read(tokens, value(reply))
    except BadReply as error:
        return Read(tokens, error)
