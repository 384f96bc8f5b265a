"""What the tests of attempts share: profiles of each kind on the fake provider, one call, and what it led to."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from core.budget.model import CallClass
from core.models.model import Completion, Message, Noul
from core.models.profiles import ModelProfile, parse_model
from tests.fakes.models import Alone, alone, call
from tests.fakes.provider import Provider

KEY_ENV = "MODEL_KEY"
KEY = "canary-6f1d"
DECIDES = frozenset({"jev", "systemone"})


def profile(fake: Provider, kind: str = "jev", **fields: Any) -> ModelProfile:
    """A profile of that kind whose endpoint is the fake; `fields` as in the JSON of a profile."""
    given: dict[str, dict[str, Any]] = {
        "jev": {"model": "jev-1.13.0", "testEndpoint": f"{fake.url}/v1/systemone"},
        "deepseek": {"model": "deepseek-flash", "testEndpoint": f"{fake.url}/chat/completions"},
        "openai": {"model": "gpt-4.1-mini", "baseURL": f"{fake.url}/v1"},
        "systemone": {"model": "open-1", "baseURL": f"{fake.url}/v1"},
        "local": {"model": "own", "baseURL": f"{fake.url}/v1"},
    }
    keyed = {} if kind in ("local", "systemone") else {"keyEnv": KEY_ENV}
    return parse_model(kind, {"kind": kind, **given[kind], **keyed, **fields}, {KEY_ENV})


def gateway(**more: Any) -> AbstractContextManager[Alone]:
    """A gateway without a database; its dice give 1: the longest waits."""
    return alone(keys={KEY_ENV: KEY}, **more)


def ask(opened: Alone, model: ModelProfile, call_class: CallClass = "read", **more: Any) -> Any:
    """One decision or completion, as the profile can."""
    if model.decides:
        return opened.gateway.decide(
            model, "The owl lives in the mill.", {"q": Noul("Is it about an owl?")}, call(call_class, **more)
        )
    return opened.gateway.complete(model, Completion([Message("user", "Where is the owl?")]), call(call_class, **more))


def outcome(ask: Callable[[], Any]) -> str:
    """`ok`, or the name of the error."""
    try:
        ask()
    except Exception as error:
        return type(error).__name__
    return "ok"


def attempts(model: ModelProfile, most: int) -> ModelProfile:
    return replace(model, max_attempts=most)
