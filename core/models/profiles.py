"""Profiles: which model, where, for what price (contract.md, Store configuration). Only operators make them.

A profile never holds a key: `keyEnv` names the variable that does, and the operator lists which variables may be named
(MUNIMENT_MODEL_KEY_ENVS); otherwise whoever may write a profile could send any secret to any host.
"""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from core.budget.model import CURRENCIES
from core.errors import FieldProblem, InvalidRequest
from core.records.model import refusal

Kind = Literal["jev", "systemone", "deepseek", "openai", "local"]

OFFICIAL = {
    "jev": ("https://api.typesafe.ai/v1/systemone", "TYPESAFE_API_KEY"),
    "deepseek": ("https://api.deepseek.com/chat/completions", "DEEPSEEK_API_KEY"),
}
"""The pinned endpoints, and the variables their keys are in unless `keyEnv` says otherwise."""
DECIDERS = frozenset({"jev", "systemone"})
"""The kinds that speak System One; all others complete, and can stand in for it."""

TIMEOUT_SECONDS = 90.0
LARGEST_TIMEOUT = 1_800
DEEPSEEK_TOKENS = 16_384
MOST_TOKENS = 1_000_000
MOST_PRICE = 1_000_000

_PER_UNIT = 10**9
JEV_PRICES = (42_000_000, 0)
DEEPSEEK_PRICES = (2 * _PER_UNIT, 8 * _PER_UNIT)
"""CNY at peak, nothing from a cache: never too little (memory-agent.md §9.2)."""
OPENAI_PRICES = {"gpt-4.1-mini": (400_000_000, 1_600_000_000), "gpt-4o-mini": (150_000_000, 600_000_000)}
"""Nano-USD per million tokens, in and out."""

Text = Annotated[str, Field(min_length=1, max_length=200)]
Url = Annotated[str, Field(min_length=1, max_length=500)]
Price = Annotated[float, Field(ge=0, le=MOST_PRICE)]


class ModelForm(BaseModel):
    """A model's profile as JSON. Which fields a kind takes: `parse_model`."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True,
        json_schema_extra={"examples": [{"kind": "local", "model": "qwen3-4b", "baseURL": "http://127.0.0.1:8001/v1"}]},
    )  # fmt: skip

    kind: Kind
    model: Text
    base_url: Annotated[Url | None, Field(alias="baseURL")] = None
    key_env: Text | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    thinking: bool | None = None
    timeout_seconds: Annotated[float, Field(ge=1, le=LARGEST_TIMEOUT)] | None = None
    attempt_timeout_seconds: Annotated[float, Field(ge=1, le=LARGEST_TIMEOUT)] | None = None
    max_attempts: Annotated[int, Field(ge=1, le=10)] | None = None
    price_in: Price | None = None
    price_out: Price | None = None
    test_endpoint: Url | None = None


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A profile that can work. Prices are nano-units of `currency` per million tokens; 0 when `paid` is False."""

    name: str
    kind: Kind
    model: str
    endpoint: str
    key_env: str = ""
    max_tokens: int | None = None
    thinking: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS
    attempt_timeout_seconds: float | None = None
    max_attempts: int | None = None
    paid: bool = False
    price_in: int = 0
    price_out: int = 0

    @property
    def decides(self) -> bool:
        """Whether it speaks System One."""
        return self.kind in DECIDERS

    @property
    def currency(self) -> str:
        return CURRENCIES[self.kind] if self.paid else ""

    @property
    def circuit(self) -> str:
        """What breaks and recovers as one: the provider at its official endpoint, or one other endpoint."""
        if self.kind in OFFICIAL and self.endpoint == OFFICIAL[self.kind][0]:
            return self.kind
        return f"{self.kind} {host_of(self.endpoint)}"


def parse_model(name: str, data: object, key_envs: Collection[str]) -> ModelProfile:
    """The profile in decoded JSON. Raises InvalidRequest naming each field that is wrong or cannot work."""
    try:
        form = ModelForm.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
    problems = [
        *_field_problems(form), *_address_problems(form), *_key_problems(form, key_envs), *_price_problems(form),
        *_limit_problems(form),
    ]  # fmt: skip
    if problems:
        raise InvalidRequest(f"{problems[0].field}: {problems[0].message}", fields=problems)
    price_in, price_out = _prices(form)
    return ModelProfile(
        name=name,
        kind=form.kind,
        model=form.model,
        endpoint=_endpoint(form),
        key_env=_key_env(form),
        max_tokens=form.max_tokens,
        thinking=bool(form.thinking),
        timeout_seconds=form.timeout_seconds or TIMEOUT_SECONDS,
        attempt_timeout_seconds=form.attempt_timeout_seconds,
        max_attempts=form.max_attempts,
        paid=_paid(form),
        price_in=price_in,
        price_out=price_out,
    )


# What each kind takes -----------------------------------------------------------------------------------------------------

_COMPLETERS = ("deepseek", "openai", "local")
_TAKERS = {
    "base_url": ("systemone", "openai", "local"),
    "max_tokens": _COMPLETERS,
    "thinking": ("deepseek",),
    "price_in": ("systemone", "openai"),
    "price_out": ("systemone", "openai"),
    "test_endpoint": ("jev", "deepseek"),
}


def _field_problems(form: ModelForm) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for field, kinds in _TAKERS.items():
        if getattr(form, field) is not None and form.kind not in kinds:
            found.append(FieldProblem(_named(field), f"is not for kind {form.kind}; leave it out"))
    if form.kind in _TAKERS["base_url"] and form.base_url is None:
        found.append(FieldProblem("baseURL", f"is required for kind {form.kind}, e.g. https://host/v1"))
    if form.kind == "jev" and form.model in ("jev-latest", "jev-preview"):
        found.append(FieldProblem("model", "is an alias, which moves; name a version, e.g. jev-1.13.0"))
    return found


def _named(field: str) -> str:
    return "baseURL" if field == "base_url" else to_camel(field)


def _address_problems(form: ModelForm) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if form.test_endpoint is not None:
        fault = url_fault(form.test_endpoint) or (
            None if urlsplit(form.test_endpoint).scheme == "http" and is_loopback(form.test_endpoint)
            else "must be an http URL on a loopback host, e.g. http://127.0.0.1:9000/v1/systemone"
        )  # fmt: skip
        found += [FieldProblem("testEndpoint", fault)] if fault else []
    if form.base_url is not None:
        fault = url_fault(form.base_url)
        if fault is None and form.kind == "local" and not is_loopback(form.base_url):
            fault = "must be on a loopback host for kind local; use kind openai for others"
        found += [FieldProblem("baseURL", fault)] if fault else []
    return found


def url_fault(url: str) -> str | None:
    """What keeps a request from being sent there: HTTPS, or HTTP on a loopback host; no user, query or fragment."""
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if not url.isascii() or not url.isprintable() or " " in url or parts.scheme not in ("https", "http"):
        return "is not an http or https URL"
    if not parts.hostname or port == 0:
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or password; use keyEnv"
    if parts.query or parts.fragment:
        return "must not hold a query or fragment"
    if parts.scheme == "http" and not is_loopback(url):
        return "must be https, unless the host is a loopback address"
    return None


def host_of(url: str) -> str:
    """host:port as the URL names it."""
    return urlsplit(url).netloc


def is_loopback(url: str) -> bool:
    """Whether the host is this machine by its own name: localhost, 127.0.0.0/8, ::1."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _endpoint(form: ModelForm) -> str:
    if form.kind in OFFICIAL:
        return form.test_endpoint or OFFICIAL[form.kind][0]
    return (form.base_url or "").rstrip("/") + ("/systemone" if form.kind in DECIDERS else "/chat/completions")


# Keys and prices ----------------------------------------------------------------------------------------------------------


def _key_env(form: ModelForm) -> str:
    default = OFFICIAL[form.kind][1] if form.kind in OFFICIAL and form.test_endpoint is None else ""
    return form.key_env or default


def _key_problems(form: ModelForm, key_envs: Collection[str]) -> list[FieldProblem]:
    name = _key_env(form)
    if form.kind == "openai" and not name:
        return [FieldProblem("keyEnv", "is required for kind openai: the environment variable that holds the key")]
    return key_env_problems(name, key_envs)


def key_env_problems(name: str, key_envs: Collection[str]) -> list[FieldProblem]:
    """`name`: "" for none."""
    if not name or name in key_envs:
        return []
    return [FieldProblem("keyEnv", f"{name:.80} is not listed in MUNIMENT_MODEL_KEY_ENVS; the operator must add it")]


def _paid(form: ModelForm) -> bool:
    if form.kind == "systemone":
        return form.price_in is not None or not is_loopback(form.base_url or "")
    return form.kind != "local"


def _price_problems(form: ModelForm) -> list[FieldProblem]:
    if form.kind == "systemone" and form.base_url and not is_loopback(form.base_url) and form.price_in is None:
        return [FieldProblem("priceIn", "is required unless the host is a loopback address: USD per million tokens")]
    if form.kind == "systemone" and form.price_out is not None and form.price_in is None:
        return [FieldProblem("priceIn", "is required beside priceOut")]
    if form.kind == "openai" and form.model not in OPENAI_PRICES:
        missing = [name for name in ("price_in", "price_out") if getattr(form, name) is None]
        return [
            FieldProblem(to_camel(name), f"is required for {form.model:.80}: USD per million tokens")
            for name in missing
        ]
    return []


def _prices(form: ModelForm) -> tuple[int, int]:
    if form.kind == "jev":
        return JEV_PRICES
    if form.kind == "deepseek":
        return DEEPSEEK_PRICES
    known = OPENAI_PRICES.get(form.model, (0, 0)) if form.kind == "openai" else (0, 0)
    return _nanos(form.price_in, known[0]), _nanos(form.price_out, known[1])


def _nanos(price: float | None, default: int) -> int:
    """Rounded up: never too little."""
    return default if price is None else int((Decimal(str(price)) * _PER_UNIT).to_integral_value(ROUND_CEILING))


def _limit_problems(form: ModelForm) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if form.kind == "deepseek" and (form.max_tokens or 0) > DEEPSEEK_TOKENS:
        found.append(FieldProblem("maxTokens", f"is at most {DEEPSEEK_TOKENS} for kind deepseek"))
    whole = form.timeout_seconds or TIMEOUT_SECONDS
    if form.attempt_timeout_seconds is not None and form.attempt_timeout_seconds > whole:
        found.append(FieldProblem("attemptTimeoutSeconds", f"is at most timeoutSeconds, which is {whole:g}"))
    return found
