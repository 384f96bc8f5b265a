"""The operators' way to Postgres: the settings' database, else that of the stack that runs on the data folder."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from core.errors import NotFound
from core.settings import Settings, load
from core.store.database import Database, Tx
from core.store.probe import reach
from core.tenants.tenants import Tenant, get_tenant, list_tenants
from workers.embedded.datadir import DataDir, Running

PAGE = 1_000


def operator_settings() -> Settings:
    """The settings, with the addresses of the running local stack where none are set."""
    settings = load()
    if not settings.database_url.get_secret_value() and (running := DataDir(settings.data_dir).running()):
        return load(database_url=running.database_url, redis_url=running.redis_url, **of_stack(settings, running))
    return settings


def of_stack(settings: Settings, running: Running) -> dict[str, Any]:
    """What the stack was told of models and this command was not."""
    return {name: value for name, value in running.models.items() if name not in settings.model_fields_set}


@contextmanager
def operator_database() -> Generator[Database]:
    """The owner's database. Raises SettingsError when no address is set, Unavailable when it cannot be reached."""
    settings = operator_settings()
    reach(settings.direct_url)
    with Database(settings.direct_url, name="cli", size=1, prepare=settings.prepare) as db:
        yield db


def find_tenant(tx: Tx, name_or_id: str) -> Tenant:
    """A tenant by its id or its name. Raises NotFound."""
    try:
        return get_tenant(tx, UUID(name_or_id))
    except ValueError:
        pass
    page = list_tenants(tx, limit=PAGE)
    while page:
        for tenant in page:
            if tenant.name == name_or_id:
                return tenant
        page = list_tenants(tx, after=page[-1].id, limit=PAGE) if len(page) == PAGE else []
    raise NotFound(f"there is no tenant {name_or_id!r}")
