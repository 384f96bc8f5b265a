"""Schema: roles and database once by an administrator, then numbered migrations (yoyo) and the functions by the owner.

Migrations expand or contract, never both at once; each sets its own lock and statement time-outs. The functions and views
are replaced as a whole after the migrations, in one transaction, so old workers never meet half of them.
"""

import hashlib
from collections.abc import Mapping
from importlib.resources import as_file, files
from typing import Any
from urllib.parse import urlsplit

import psycopg
import yoyo  # pyright: ignore[reportMissingTypeStubs]
from psycopg import sql

from core.errors import Unavailable
from core.store.database import CONNECT_SECONDS, Database
from core.store.queries import queries, script, scripts

LOCK = "muniment.migrate"
_yoyo: Any = yoyo  # it has no types


def bootstrap(administrator_dsn: str, passwords: Mapping[str, str], database: str) -> None:
    """Makes the roles (passwords by role: owner, app, relay, exporter), the database, and its pgvector extension.

    Needs a role that may create roles and databases, and the extension; safe to run again."""
    with psycopg.connect(administrator_dsn, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        for role, password in passwords.items():
            queries().set_role_password(connection, name=f"muniment.password_{role}", password=password)
        connection.execute(script("roles.sql").encode())
        if not list(queries().database_exists(connection, database=database)):
            create = sql.SQL("create database {} owner muniment_owner template template0 encoding 'UTF8'")
            connection.execute(create.format(sql.Identifier(database)))
    parts = urlsplit(administrator_dsn)
    target = parts._replace(path=f"/{database}").geturl()
    with psycopg.connect(target, autocommit=True, connect_timeout=CONNECT_SECONDS) as connection:
        connection.execute(script("bootstrap.sql").encode())


def migrate(owner_dsn: str) -> list[str]:
    """Applies what is pending and replaces the functions; returns the ids of the migrations applied, in order.

    Safe to start several times at once: an advisory lock lets one run and the others find nothing left."""
    applied: list[str] = []
    with as_file(files("sql") / "migrations") as folder:
        backend = _yoyo.get_backend(_yoyo_url(owner_dsn))
        try:
            with backend.lock(timeout=60):
                wanted = backend.to_apply(_yoyo.read_migrations(str(folder)))
                applied = [str(migration.id) for migration in wanted]
                backend.apply_migrations(wanted)
        finally:
            backend.connection.close()
    with psycopg.connect(owner_dsn, connect_timeout=CONNECT_SECONDS) as connection:
        queries().lock_migrations(connection, name=LOCK)
        for _, text in scripts("functions"):
            connection.execute(text.encode())
        queries().record_functions(connection, digest=_functions_digest())
    return applied


def pending(db: Database) -> list[str]:
    """What `muniment migrate` would do: ids of migrations not applied, and `functions` when these differ."""
    names = [name.removesuffix(".sql") for name, _ in scripts("migrations")]
    try:
        with db.system() as tx:
            known = {row["migration_id"] for row in tx.rows("applied_migrations")}
            digest = tx.value("functions_digest")
    except psycopg.errors.UndefinedTable:
        return names
    missing = [name for name in names if name not in known]
    if digest != _functions_digest():
        missing.append("functions")
    return missing


def _functions_digest() -> str:
    return hashlib.sha256("\0".join(text for _, text in scripts("functions")).encode()).hexdigest()


def _yoyo_url(dsn: str) -> str:
    parts = urlsplit(dsn)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise Unavailable("the database address must be a URL: postgresql://user:password@host:port/database")
    return parts._replace(scheme="postgresql+psycopg").geturl()
