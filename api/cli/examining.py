"""What `muniment doctor` examines: Postgres, Redis, the API with the given key, and what the fleet says about itself."""

import httpx

from api.cli.operating import of_stack, operator_settings
from core.doctor import fleet, postgres
from core.doctor.model import OK, SKIPPED, UNKNOWN, WRONG, Finding, Report, StuckJob
from core.settings import Settings, load
from core.store.database import Database
from core.tenants.keys import authenticate, hash_key
from workers.checks import check_redis
from workers.embedded.datadir import DataDir, read_key
from workers.main import POOL_MOST
from workers.queues import GROUPS

HTTP_SECONDS = 5.0


def examine(settings: Settings) -> Report:
    """Every check. Raises SettingsError when no database is named; all else is a finding."""
    redis_findings, redis_ahead = _redis(settings)
    with Database(settings.secret("database_url"), name="doctor", size=1, prepare=False) as db:
        findings = _postgres(db, settings)
        reached = findings[0].status == OK
        findings += [*redis_findings, check_key(db if reached else None, settings)]
    found, stuck = _fleet(settings, redis_ahead) if reached else (fleet.skipped("Postgres cannot be reached"), [])
    return Report([*findings, *found], stuck)


def check_key(db: Database | None, settings: Settings) -> Finding:
    """The API takes the key. When the API cannot be reached, the database (if it can) is asked about the key."""
    secret = settings.api_key.get_secret_value()
    if not secret:
        return Finding("key", SKIPPED, "MUNIMENT_API_KEY is not set")
    refused = "make a key with `muniment keys create`, and set MUNIMENT_API_KEY"
    try:
        with httpx.Client(timeout=HTTP_SECONDS) as client:
            answer = client.get(f"{settings.url.rstrip('/')}/v1/stores", headers={"Authorization": f"Bearer {secret}"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        unreached = f"the API at {settings.url} does not answer ({type(error).__name__}: {error})"
        if db is not None and not _known(db, secret):
            return Finding("key", WRONG, f"Postgres knows no such key; {unreached}", "wrong-key", refused)
        look = "start `muniment api`, or correct MUNIMENT_URL"
        return Finding("key", WRONG, unreached, "api-unreachable", look)
    if answer.status_code == 401:
        return Finding("key", WRONG, f"the API at {settings.url} refuses the key (401)", "wrong-key", refused)
    if answer.status_code >= 500:
        look = f"unknown cause, look at the API's log and {settings.url}/readyz"
        return Finding("key", UNKNOWN, f"the API at {settings.url} answers {answer.status_code}", look=look)
    return Finding("key", OK, f"the API at {settings.url} takes the key")


def _known(db: Database, secret: str) -> bool:
    """Whether the key is in the database; True when that cannot be told, which another check explains."""
    try:
        return authenticate(db, hash_key(secret)) is not None
    except Exception:  # a database without our tables
        return True


def settings_of_site() -> Settings:
    """The settings, completed with the address and the key of the local stack, if it is that one's database."""
    settings = operator_settings()
    running = DataDir(settings.data_dir).running()
    if running is None or settings.database_url.get_secret_value() != running.database_url:
        return settings
    key = settings.api_key.get_secret_value() or read_key(DataDir(settings.data_dir).key_file) or ""
    return load(
        database_url=running.database_url, redis_url=running.redis_url, url=running.url, api_key=key,
        **of_stack(settings, running),
    )  # fmt: skip


def _postgres(db: Database, settings: Settings) -> list[Finding]:
    busy = max((group.threads for group in GROUPS.values() if group.threads < POOL_MOST), default=1)
    return postgres.examine(
        db, settings, pool_size=settings.pool_size or min(busy + 1, POOL_MOST), threads=busy
    )  # fmt: skip


def _redis(settings: Settings) -> tuple[list[Finding], float | None]:
    url = settings.redis_url.get_secret_value()
    if not url:
        return [Finding(name, SKIPPED, "MUNIMENT_REDIS_URL is not set") for name in ("redis", "eviction")], None
    return check_redis(url)


def _fleet(settings: Settings, redis_ahead: float | None) -> tuple[list[Finding], list[StuckJob]]:
    groups = {queue: group.name for group in GROUPS.values() for queue in group.queues}
    dsn = settings.database_operator_url.get_secret_value() or settings.secret("database_url")
    with Database(dsn, name="doctor-fleet", size=1, prepare=False) as db:
        return fleet.examine(db, settings, groups, redis_ahead)
