"""The one place that reads the environment: variables with the prefix MUNIMENT_ (contract.md, Settings)."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from core.budget.model import parse_caps
from core.errors import MunimentError
from core.wording import plain

PREFIX = "MUNIMENT_"
_POSTGRES = ("postgresql://", "postgres://")
_REDIS = ("redis://", "rediss://", "unix://")


class SettingsError(MunimentError):
    """A setting is unknown or not valid; the process must not start. The detail names the variable and the cure.

    Its slug is no problem's: this is told at the terminal and in the log, never to a client."""

    slug, title = "settings", "A setting is wrong or missing"


class Settings(BaseSettings):
    """One frozen value a process. Ages and leases are seconds; sizes are bytes unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    database_url: SecretStr = SecretStr("")
    database_direct_url: SecretStr = SecretStr("")
    database_operator_url: SecretStr = SecretStr("")
    redis_url: SecretStr = SecretStr("")
    bind: str = "127.0.0.1:8420"
    admin_bind: str = ""
    data_dir: Path = Path(".muniment")
    url: str = "http://127.0.0.1:8420"
    api_key: SecretStr = SecretStr("")
    readonly: bool = False
    allow_model_cache: bool = False
    prepare: bool = True
    log: str = Field(default="json", pattern="^(json|text)$")

    models: Path | None = None
    """A JSON file of model and embedding profiles: `{name: {…profile, "grants": "*" or [tenant ids]}}`."""
    model_key_envs: str = ""
    """The environment variables, separated by commas, that profiles may name as their `keyEnv`."""
    inline_models: bool = False
    """Whether stores may describe models in place of naming a profile; `muniment up` sets it, for one person's machine."""
    model_inflight_read: int = Field(default=256, ge=1, le=100_000)
    """Calls in flight with one provider, of the whole fleet, by their class."""
    model_inflight_flush: int = Field(default=32, ge=1, le=100_000)
    model_inflight_consolidation: int = Field(default=64, ge=1, le=100_000)

    pool_size: int = Field(default=0, ge=0, le=200)
    """Connections of one process; 0: as many as it has threads, at most 16."""
    accept_group: int = Field(default=64, ge=1, le=1000)
    """The most jobs that one accepting transaction takes (group commit)."""
    auth_cache_seconds: float = Field(default=5.0, ge=0, le=60)
    """How long a process trusts a key it has looked up: a revoked key stops working within this time."""

    lease_seconds: float = Field(default=30.0, ge=1, le=600)
    renew_seconds: float = Field(default=10.0, gt=0, le=300)
    sweep_seconds: float = Field(default=5.0, gt=0, le=60)
    relay_poll_seconds: float = Field(default=1.0, gt=0, le=60)
    relay_lease_seconds: float = Field(default=5.0, gt=0, le=60)
    resend_seconds: float = Field(default=30.0, ge=12, le=3600)
    """A wake-up is sent again after max(this, 3 × the queue's p95 wait): at least 12 s, so at most 5 sends a job a minute."""
    max_attempts: int = Field(default=5, ge=1, le=100)
    max_crashes: int = Field(default=3, ge=3, le=100)
    inflight_interactive: int = Field(default=16, ge=1, le=10_000)
    inflight_bulk: int = Field(default=4, ge=1, le=10_000)
    read_deadline_seconds: int = Field(default=45, ge=1, le=300)
    write_deadline_seconds: int = Field(default=60, ge=1, le=3600)
    import_deadline_seconds: int = Field(default=600, ge=1, le=3600)
    shutdown_seconds: float = Field(default=25.0, ge=0, le=3600)
    """How long a stopping worker lets running jobs finish; keep the orchestrator's grace period above it."""

    index_cache_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    """What a process keeps in memory of all stores' lexical indexes, about; one search may need more while it runs."""
    vector_cache_bytes: int = Field(default=512 * 1024 * 1024, ge=1024 * 1024)
    """The same of all stores' vectors. A store that is larger is read from Postgres for each search: give it room."""

    budgets: Annotated[dict[str, int], NoDecode, BeforeValidator(parse_caps)] = {}
    """Caps of the providers, as JSON in whole units: `{"jev": 10, "deepseek": 60}`. Written over the stored ones at start."""
    budget_slice: float = Field(default=0.0, ge=0, le=0.5)
    """Which part of a cap a process leases at once; 0: every reservation asks the account itself."""
    budget_retry_seconds: float = Field(default=60.0, ge=1, le=86_400)
    """After this long a job that waits for money is tried again; one that the operator's raise of a cap wakes, at once."""

    keep_payload_hours: float = Field(default=24.0, gt=0)
    keep_read_hours: float = Field(default=1.0, gt=0)
    keep_job_days: float = Field(default=30.0, gt=0)
    keep_idempotency_hours: float = Field(default=24.0, gt=0)
    keep_upload_hours: float = Field(default=24.0, gt=0)

    exporter_bind: str = "127.0.0.1:9420"
    rehearsal_bind: str = "127.0.0.1:9430"
    """Where `muniment rehearsal` listens: rules in the place of models, for the embedded stack."""
    metrics_bind: str = ""
    """A worker's own /metrics, /healthz and /readyz; empty: none."""
    faults: str = ""
    """Fault hooks for drills and tests, e.g. `commit.before=kill:0.1`; empty in every real process."""

    @field_validator("database_url", "database_direct_url", "database_operator_url", "redis_url")
    @classmethod
    def _address(cls, value: SecretStr, info: ValidationInfo) -> SecretStr:
        text = value.get_secret_value()
        redis = info.field_name == "redis_url"
        schemes = _REDIS if redis else _POSTGRES
        if text and not text.startswith(schemes) and (redis or "=" not in text):  # libpq takes `host=… dbname=…` too
            raise PydanticCustomError("invalid", "must begin with {one}", {"one": " or ".join(schemes)})
        return value

    def secret(self, name: str) -> str:
        """The plain text of a secret setting; raises `SettingsError` that names the variable when it is not set."""
        value: object = getattr(self, name)
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        if not text:
            cure = "see deploy/docs/operations.md, or start `muniment up` here"
            raise SettingsError(f"{PREFIX}{name.upper()} is not set: {cure}")
        return text

    @property
    def key_envs(self) -> frozenset[str]:
        """The variables that a profile's `keyEnv` may name."""
        return frozenset(name.strip() for name in self.model_key_envs.split(",") if name.strip())

    def model_key(self, name: str) -> str:
        """The key in the environment variable `name`, read when it is used and kept nowhere.

        Raises SettingsError when operators did not list it, or it is not set; never repeats its value."""
        if name not in self.key_envs:
            raise SettingsError(f"{name} is not listed in {PREFIX}MODEL_KEY_ENVS")
        key = os.environ.get(name, "")
        if not key:
            raise SettingsError(f"the environment variable {name} is not set, and a model profile names it")
        if not _is_key(key):
            raise SettingsError(f"the environment variable {name} holds what no key can hold")
        return key

    def keys_held(self) -> list[str]:
        """The names of the listed variables that hold a key here."""
        return sorted(name for name in self.key_envs if _is_key(os.environ.get(name, "")))

    def of_models(self) -> dict[str, str]:
        """What the environment says of models and money, for the processes of `muniment up`."""
        names = ("model_key_envs", "model_inflight_read", "model_inflight_flush", "model_inflight_consolidation")
        given = {name: str(getattr(self, name)) for name in names if name in self.model_fields_set}
        if self.models is not None:
            given["models"] = str(self.models.absolute())
        if self.allow_model_cache:
            given["allow_model_cache"] = "1"
        return given

    @property
    def direct_url(self) -> str:
        """The database past the pooler; the same as DATABASE_URL unless set."""
        return self.database_direct_url.get_secret_value() or self.secret("database_url")


def _is_key(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and text == text.strip()


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment, `given` values first. An unknown variable refuses to start, with the near name."""
    names = os.environ if environment is None else environment
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in names:
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise SettingsError(f"{name} is not a setting" + (f": did you mean {near[0]}?" if near else ""))
    try:
        if environment is None:
            return Settings(**given)
        fields = {
            name.removeprefix(PREFIX).lower(): value for name, value in environment.items() if name in known and value
        }
        return Settings.model_validate({**fields, **given})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = f"{PREFIX}{str(first['loc'][0]).upper()}" if first["loc"] else PREFIX
        raise SettingsError(f"{name}: {plain(first)}") from None


def child_environment(**settings: str) -> dict[str, str]:
    """The environment for a process we start: ours without any MUNIMENT_ variable, plus the given settings by field name."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return base | {f"{PREFIX}{name.upper()}": value for name, value in settings.items()}
