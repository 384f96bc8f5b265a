"""Checks of the database that Muniment was given: reachable, complete, with room, and sound behind its pooler."""

from core.doctor.model import OK, SKIPPED, WRONG, Finding
from core.errors import MunimentError, Unavailable
from core.settings import Settings
from core.store.database import Database
from core.store.migrate import pending
from core.store.probe import asking, measure_pool, prepared_statements_problem, reach

FULL_SHARE = 0.9
WAIT_SHARE = 1.2
"""A pool is too small when a thread waits longer than this many times as long as it then keeps its connection."""
TRIES = 3
NAMES = ("extension", "migrations", "roles", "pool", "prepared")


def examine(db: Database, settings: Settings, *, pool_size: int, threads: int) -> list[Finding]:
    """All of them. `pool_size`, `threads`: of the worker whose every thread needs a connection (settings.pool_size)."""
    dsn = settings.secret("database_url")
    reached = check_reachable(db, dsn)
    if reached.status == WRONG:
        return [reached, *(Finding(name, SKIPPED, "Postgres cannot be reached") for name in NAMES)]
    return [
        reached,
        check_extension(db),
        check_migrations(db),
        check_roles(db),
        check_pool(db, dsn, size=pool_size, threads=threads),
        check_prepared(dsn, settings.prepare),
    ]


def check_reachable(db: Database, dsn: str) -> Finding:
    try:
        reach(dsn)
        with asking(db) as tx:
            facts = tx.row("server_facts") or {}
    except Unavailable as error:
        return Finding(
            "postgres",
            WRONG,
            error.detail,
            "postgres-unreachable",
            "check MUNIMENT_DATABASE_URL, and that the server runs",
        )
    return Finding("postgres", OK, f"Postgres {facts.get('version')} answers as {facts.get('role')}")


def check_extension(db: Database) -> Finding:
    try:
        with asking(db) as tx:
            facts = tx.row("server_facts") or {}
    except Unavailable as error:
        return Finding("extension", SKIPPED, error.detail)
    if facts.get("has_vector"):
        return Finding("extension", OK, "pgvector is there")
    return Finding(
        "extension", WRONG, "the database has no extension `vector`", "missing-extension",
        "install pgvector on the server, then `create extension vector` as a superuser, or `muniment migrate --bootstrap`",
    )  # fmt: skip


def check_migrations(db: Database) -> Finding:
    try:
        missing = pending(db)
    except MunimentError as error:
        return Finding("migrations", SKIPPED, error.detail)
    if missing:
        return Finding(
            "migrations", WRONG, f"not applied: {', '.join(missing)}", "migrations-behind",
            "`muniment migrate` with this version, as the owner",
        )  # fmt: skip
    return Finding("migrations", OK, "all are applied")


def check_roles(db: Database) -> Finding:
    """The roles have the settings of sql/roles.sql that plans rest on; a database made by an older version has them not."""
    try:
        with asking(db) as tx:
            missing = [f"{row['role']} {row['setting']}" for row in tx.rows("missing_role_settings")]
    except Unavailable as error:
        return Finding("roles", SKIPPED, error.detail)
    if missing:
        return Finding(
            "roles", WRONG, f"not set: {', '.join(missing)}", "role-settings-missing",
            "`muniment migrate --bootstrap ADMIN_URL` again, with an administrator's address (plain `migrate` may not change "
            "roles), then restart the processes",
        )  # fmt: skip
    return Finding("roles", OK, "the roles have the settings that plans rest on")


def check_pool(db: Database, dsn: str, *, size: int, threads: int) -> Finding:
    """The pool that the settings give a worker, under as many threads as it has; and the server's room for more."""
    look = "raise MUNIMENT_POOL_SIZE (0 fits it to the threads), the pooler's default_pool_size, or max_connections"
    try:
        with asking(db) as tx:
            facts = tx.row("connection_facts") or {"used": 0, "most": 1}
        if facts["used"] >= FULL_SHARE * facts["most"]:
            measured = f"{facts['used']} of the {facts['most']} connections that Postgres takes are in use"
            return Finding(
                "pool",
                WRONG,
                measured,
                "pool-too-small",
                "lower MUNIMENT_POOL_SIZE, raise max_connections, or put a pooler between",
            )
        pool = measure_pool(dsn, size=size, threads=threads)
        for _ in range(TRIES - 1):  # what is only busy for a moment is not too small
            if pool.share > WAIT_SHARE:
                pool = measure_pool(dsn, size=size, threads=threads)
    except Unavailable as error:
        return Finding("pool", WRONG, f"connections do not come: {error.detail}", "pool-too-small", look)
    measured = (
        f"{threads} threads on {size} connections wait {pool.wait * 1000:.0f} ms (median) for one that each keeps "
        f"{pool.hold * 1000:.0f} ms; {facts['used']} of {facts['most']} are in use"
    )
    if pool.share > WAIT_SHARE:
        return Finding("pool", WRONG, measured, "pool-too-small", look)
    return Finding("pool", OK, measured)


def check_prepared(dsn: str, prepare: bool) -> Finding:
    if not prepare:
        return Finding("prepared", OK, "MUNIMENT_PREPARE is off: no statement is prepared")
    try:
        problem = prepared_statements_problem(dsn)
    except Unavailable as error:
        return Finding("prepared", SKIPPED, error.detail)
    if problem:
        return Finding(
            "prepared", WRONG, problem, "prepared-statements-lost",
            "the pooler does not track prepared statements: set MUNIMENT_PREPARE=0, or PgBouncer ≥ 1.22 with "
            "max_prepared_statements > 0",
        )  # fmt: skip
    return Finding("prepared", OK, "two connections prepared the same statement and ran it again")
