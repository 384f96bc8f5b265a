"""A store's configuration: its fields, its defaults, and what is refused (contract.md, Store configuration).

What cannot work is refused when it is stored, naming the field, never at the first read. At present models may be named,
but no read asks them and there is no consolidated layer: whatever needs one is refused until the part it needs is there.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from core.budget.model import CURRENCIES, parse_caps
from core.errors import FieldProblem, InvalidRequest
from core.jsontext import canonical, sha256_hex
from core.models import builtin
from core.models.catalogue import BUILTIN_NAME, Either, Named
from core.models.profiles import ModelProfile
from core.records.model import refusal

FLAGS = ("planning", "screening", "judging", "coverage", "looping", "consolidation")
ROUTES = ("entities", "relations", "temporal", "supersedes", "recency", "traversal")
LAYERED = frozenset({"relations", "supersedes"})
"""Routes that walk over what consolidation makes."""
MAX_ITEMS = 16
COMPLETERS = ("planner", "consolidator")
"""What must be able to write; a judge may be of any kind."""

Find = Callable[[Named], Either | None]
"""The profile that a configuration names, if the tenant may use it. Raises InvalidRequest: its inline form is wrong."""
_NOT_HASHED = frozenset({"modelCache", "budgets"})
_TIMEOUTS = frozenset({"timeoutSeconds", "attemptTimeoutSeconds"})
_CACHE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)


def _cache_name(value: str) -> str:
    if _CACHE_NAME.fullmatch(value) is None:
        raise PydanticCustomError("invalid", "must be 1 to 63 letters, digits, hyphens, dots or underscores")
    return value


def _budgets(value: dict[str, Any]) -> dict[str, Any]:
    try:
        parse_caps(value)
    except ValueError as error:
        raise PydanticCustomError("invalid", "{problem}", {"problem": str(error)}) from None
    return value


_BUDGETS: dict[str, Any] = {
    "type": "object",
    "description": "What this store may spend with each provider, in whole units; it can only lower the operator's caps.",
    "properties": {provider: {"type": ["number", "string"]} for provider in CURRENCIES},
    "additionalProperties": False,
}
_Profile = Annotated[
    Any,
    WithJsonSchema({"type": ["string", "object", "null"], "description": "A profile granted to the tenant, by name."}),
]
_Object = Annotated[Any, WithJsonSchema({"type": "object"})]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Policy(_Part):
    """Which decisions a read takes. A flag left out of a given policy is false (memory-agent.md §6.2)."""

    planning: bool = False
    screening: bool = False
    judging: bool = False
    coverage: bool = False
    looping: bool = False
    consolidation: bool = False


class Index(_Part):
    """Where candidates come from."""

    version: Annotated[int, Field(ge=1, le=2)] = 1
    lexical: bool = False
    entities: bool = False
    relations: bool = False
    temporal: bool = False
    supersedes: bool = False
    recency: bool = False
    traversal: bool = False


class ViewConfig(_Part):
    """How many records a View holds at most, and their order: "" is by rank."""

    maxItems: Annotated[int, Field(ge=1, le=MAX_ITEMS)] = MAX_ITEMS
    order: Literal["", "time"] = ""


class StoreConfig(_Part):
    """A store's configuration as a client sends it. Fields left out take their defaults."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": 1,
                    "index": {"version": 2, "lexical": True, "entities": True, "temporal": True},
                    "view": {"maxItems": 12, "order": "time"},
                }
            ]
        }
    )

    version: Annotated[int, Field(ge=1, le=1)] = 1  # a Literal takes true and 1.0 too
    strategy: Literal["simple", "memory-agent/v1"] = "simple"
    policy: Policy | None = None
    planner: _Profile = None
    judge: _Profile = None
    consolidator: _Profile = None
    embedding: _Profile = None
    index: Index | None = None
    view: ViewConfig | None = None
    consolidation: _Object = None
    budgets: Annotated[dict[str, Any], AfterValidator(_budgets), WithJsonSchema(_BUDGETS)] | None = None
    modelCache: Annotated[str, AfterValidator(_cache_name)] | None = None


DEFAULT = StoreConfig(index=Index(version=2, lexical=True, entities=True, temporal=True), view=ViewConfig(order="time"))
"""What a store made without a configuration gets written out."""


def nothing_granted(named: Named) -> Either | None:
    del named
    return None


def parse_config(data: object, *, allow_model_cache: bool = False, find: Find = nothing_granted) -> StoreConfig:
    """The configuration in decoded JSON. `find`: the tenant's profiles, but for the built-in one.

    Raises InvalidRequest naming each field that is wrong or cannot work."""
    try:
        config = StoreConfig.model_validate(data)
    except ValidationError as error:
        raise refusal(error) from None
    problems = [
        *_unbuilt_problems(config),
        *_profile_problems(config, find),
        *_index_problems(config.index or Index()),
        *([] if allow_model_cache or config.modelCache is None else [_CACHE_PROBLEM]),
    ]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InvalidRequest(f"{problems[0].field}: {problems[0].message}{more}", fields=problems)
    return config


_CACHE_PROBLEM = FieldProblem(
    "modelCache", "is for evaluations; leave it out, or let the operator set MUNIMENT_ALLOW_MODEL_CACHE=1"
)


def _unbuilt_problems(config: StoreConfig) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if config.strategy != "simple":
        problems.append(FieldProblem("strategy", "is not available yet; use simple"))
    for flag in FLAGS:
        if config.policy is not None and getattr(config.policy, flag):
            problems.append(
                FieldProblem(f"policy.{flag}", "needs reads that ask models: not available yet; set it to false")
            )
    if config.consolidation is not None:
        problems.append(FieldProblem("consolidation", "is not available yet; leave it out"))
    return problems


def _profile_problems(config: StoreConfig, find: Find) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for role in ("planner", "judge", "consolidator", "embedding"):
        value: object = getattr(config, role)
        if value is not None:
            problems += _role_problems(role, value, find)
    return problems


def _role_problems(role: str, value: object, find: Find) -> list[FieldProblem]:
    if role == "embedding" and value in (BUILTIN_NAME, {"kind": BUILTIN_NAME}):
        return [] if builtin.installed() else [FieldProblem(role, builtin.INSTALL)]
    if not isinstance(value, (str, dict)):
        return [FieldProblem(role, "must name a profile granted to this tenant; models are set up by the operator")]
    try:
        found = find(cast("Named", value))
    except InvalidRequest as error:
        nested = [FieldProblem(f"{role}.{problem.field}", problem.message) for problem in error.fields]
        return nested or [FieldProblem(role, error.detail)]
    if found is None:
        return [FieldProblem(role, f"no profile {value!r:.80} is granted to this tenant; leave it out")]
    if isinstance(found, ModelProfile) == (role == "embedding"):
        wanted = "an embedding profile" if role == "embedding" else "a model's profile"
        return [FieldProblem(role, f"must be {wanted}, and {found.name} is none")]
    if role in COMPLETERS and isinstance(found, ModelProfile) and found.decides:
        return [FieldProblem(role, f"must complete, and {found.name} only answers questions; it can be the judge")]
    return []


def _index_problems(index: Index) -> list[FieldProblem]:
    why = "needs a consolidated layer, which is not available yet; leave it out"
    return [FieldProblem(f"index.{route}", why) for route in ROUTES if route in LAYERED and getattr(index, route)]


def effective(config: StoreConfig | None) -> dict[str, Any]:
    """The configuration with its defaults, key by key, as JSON. None: a store made without one (contract.md).

    A configuration without `index` has none: the original candidate retrieval.
    """
    config = config or DEFAULT
    settled: dict[str, Any] = {
        "version": config.version,
        "strategy": config.strategy,
        "policy": (config.policy or Policy()).model_dump(),
        "view": (config.view or ViewConfig()).model_dump(),
    }
    for role in ("planner", "judge", "consolidator"):
        if getattr(config, role) is not None:
            settled[role] = getattr(config, role)
    if "embedding" in config.model_fields_set:
        settled["embedding"] = config.embedding  # null too: it means none, where leaving it out means the default
    elif builtin.installed():
        settled["embedding"] = BUILTIN_NAME
    if config.index is not None:
        flags = {name: True for name in ("lexical", *ROUTES) if getattr(config.index, name)}
        settled["index"] = {"version": config.index.version, **flags}
    if config.budgets:
        settled["budgets"] = config.budgets
    if config.modelCache is not None:
        settled["modelCache"] = config.modelCache
    return settled


def index_version(settled: Mapping[str, Any]) -> int:
    """By which rules an effective configuration wants records to be ranked; without `index`, by the frozen ones."""
    index = cast("Mapping[str, Any]", settled.get("index") or {})
    return index.get("version", 1)


def policy_hash(settled: Mapping[str, Any]) -> str:
    """SHA-256 of the effective configuration's JCS form, without what changes no answer (contract.md).

    Left out: `modelCache`, budgets, timeouts, and an empty `view.order`.
    """
    hashed = {name: _without_timeouts(value) for name, value in settled.items() if name not in _NOT_HASHED}
    view = dict(cast("Mapping[str, Any]", hashed["view"]))
    if view.get("order") == "":
        del view["order"]
    return sha256_hex(canonical({**hashed, "view": view}))


def _without_timeouts(value: object) -> object:
    if isinstance(value, Mapping):
        part = cast("Mapping[str, object]", value)
        return {name: _without_timeouts(entry) for name, entry in part.items() if name not in _TIMEOUTS}
    return value
