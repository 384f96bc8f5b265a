"""Which profiles there are and who may name them: the operator's file, the table behind /admin/models, and what is built in.

A name of the file hides the same name of the table: what was deployed with the process wins.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast
from uuid import UUID

from core.clock import monotonic
from core.errors import InvalidRequest
from core.jsontext import canonical
from core.models.embedding import BUILTIN, EmbeddingRefused
from core.models.embedding import Profile as EmbeddingProfile
from core.models.embedding_profiles import parse_embedding
from core.models.model import ModelRefused
from core.models.profiles import ModelProfile, parse_model
from core.settings import Settings, SettingsError
from core.store.database import Database, Tx
from core.tenants.names import is_store_name
from core.text import check_text

Either: TypeAlias = ModelProfile | EmbeddingProfile
Named: TypeAlias = str | Mapping[str, Any]
"""What a store's configuration holds: a profile's name, or the inline form."""
ALL = "*"
BUILTIN_NAME = "builtin"
KEPT = 1_000


def parse_profile(name: str, data: object, key_envs: Collection[str]) -> Either:
    """A profile of either sort: with `url`, or of a kind that only embeds, it is an embedding's. Raises InvalidRequest."""
    fields: Mapping[str, Any] = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
    # pydantic would say of a lone surrogate that it is no string, and of NUL nothing.
    for field, value in fields.items():
        check_text(field, field.encode("unicode_escape").decode())
        if isinstance(value, str):
            check_text(value, field)
    if "url" in fields or fields.get("kind") in ("builtin", "ollama"):
        return parse_embedding(name, fields, key_envs)
    return parse_model(name, cast("object", data), key_envs)


def check_profile_name(name: str) -> None:
    """Raises InvalidRequest."""
    if not is_store_name(name):
        raise InvalidRequest.field("name", "must be 1 to 63 of a-z, 0-9, - and _, beginning with a letter or digit")
    if name == BUILTIN_NAME:
        raise InvalidRequest.field("name", "builtin is the built-in embedding; choose another")


@dataclass(frozen=True, slots=True)
class Filed:
    """A profile of the operator's file. `tenants` None: granted to all."""

    definition: Mapping[str, Any]
    profile: Either
    tenants: frozenset[UUID] | None

    def granted(self, tenant_id: UUID) -> bool:
        return self.tenants is None or tenant_id in self.tenants


def read_file(path: Path | None, key_envs: Collection[str]) -> dict[str, Filed]:
    """The file's profiles by name. Raises SettingsError that says what is wrong with which."""
    if path is None:
        return {}
    try:
        data: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"MUNIMENT_MODELS: {path} cannot be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise SettingsError(f"MUNIMENT_MODELS: {path} must be an object of profiles by name")
    found: dict[str, Filed] = {}
    for name, value in cast("dict[str, object]", data).items():
        try:
            check_profile_name(name)
            found[name] = _filed(name, value, key_envs)
        except InvalidRequest as error:
            raise SettingsError(f"MUNIMENT_MODELS: {path}: profile {name:.80}: {error.detail}") from None
    return found


def _filed(name: str, value: object, key_envs: Collection[str]) -> Filed:
    if not isinstance(value, dict):
        raise InvalidRequest("must be an object")
    definition = dict(cast("dict[str, Any]", value))
    tenants = parse_grants(definition.pop("grants", None))
    return Filed(definition, parse_profile(name, definition, key_envs), tenants)


def parse_grants(value: object) -> frozenset[UUID] | None:
    """None: all tenants. Raises InvalidRequest naming `grants`."""
    if value == ALL:
        return None
    entries = cast("list[object]", value) if isinstance(value, list) else None
    try:
        if entries is not None:
            return frozenset(UUID(str(entry)) for entry in entries)
    except ValueError:
        pass
    raise InvalidRequest.field("grants", 'is required: "*" for all tenants, or a list of tenant ids')


def granted(tx: Tx, filed: Mapping[str, Filed], tenant_id: UUID, name: str, key_envs: Collection[str]) -> Either | None:
    """The profile of that name, if the tenant may use it. Raises InvalidRequest when it cannot work any more."""
    if name == BUILTIN_NAME:
        return BUILTIN
    if name in filed:
        return filed[name].profile if filed[name].granted(tenant_id) else None
    definition: object = tx.value("granted_profile", tenant=tenant_id, profile=name) if is_store_name(name) else None
    return None if definition is None else parse_profile(name, definition, key_envs)


class Profiles:
    """The profiles as the calls of one process see them. A change is in force within `auth_cache_seconds`."""

    def __init__(self, db: Database, settings: Settings) -> None:
        """Raises SettingsError: the file."""
        self._db = db
        self._key_envs = settings.key_envs
        self._filed = read_file(settings.models, settings.key_envs)
        self._seconds = settings.auth_cache_seconds
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[UUID, str], tuple[float, Either | None]] = OrderedDict()

    def model(self, tenant_id: UUID, named: Named) -> ModelProfile:
        """Raises ModelRefused: no such profile, or it is not the tenant's any more."""
        found = self._found(tenant_id, named, ModelRefused)
        if not isinstance(found, ModelProfile):
            raise ModelRefused(
                f"no model profile {_shown(named)} is granted to this tenant: change the store's configuration"
            )
        return found

    def embedding(self, tenant_id: UUID, named: Named) -> EmbeddingProfile:
        """Raises EmbeddingRefused, as `model` does."""
        found = self._found(tenant_id, named, EmbeddingRefused)
        if not isinstance(found, EmbeddingProfile):
            raise EmbeddingRefused(
                f"there is no embedding profile {_shown(named)} for this tenant: change the store's `embedding`"
            )
        return found

    def finder(self, tx: Tx, tenant_id: UUID, *, inline: bool) -> Callable[[Named], Either | None]:
        """What a store's configuration may name, as it is in `tx`. `inline`: also the form that is no name."""

        def find(named: Named) -> Either | None:
            if isinstance(named, str):
                return granted(tx, self._filed, tenant_id, named, self._key_envs)
            if not inline:
                raise InvalidRequest("must name a profile granted to this tenant; models are set up by the operator")
            return parse_profile("inline", named, self._key_envs)

        return find

    @property
    def filed(self) -> Mapping[str, Filed]:
        """The operator's file."""
        return self._filed

    @property
    def key_envs(self) -> Collection[str]:
        return self._key_envs

    def _found(self, tenant_id: UUID, named: Named, refused: Callable[[str], Exception]) -> Either | None:
        key = (tenant_id, named if isinstance(named, str) else canonical(named))
        with self._lock:
            until, known = self._known.get(key, (0.0, None))
            if monotonic() < until:
                return known
        try:
            found = self._look(tenant_id, named)
        except InvalidRequest as error:
            raise refused(f"the profile {_shown(named)} cannot work: {error.detail}") from None
        with self._lock:
            self._known[key] = (monotonic() + self._seconds, found)
            self._known.move_to_end(key)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found

    def _look(self, tenant_id: UUID, named: Named) -> Either | None:
        if not isinstance(named, str):
            return parse_profile("inline", named, self._key_envs)
        if named == BUILTIN_NAME:
            return BUILTIN
        if named in self._filed:
            return self._filed[named].profile if self._filed[named].granted(tenant_id) else None
        with self._db.tenant(tenant_id) as tx:
            return granted(tx, self._filed, tenant_id, named, self._key_envs)


def _shown(named: Named) -> str:
    return repr(named[:80]) if isinstance(named, str) else "(inline)"
