"""The check at start-up that row-level security binds the role a process was given (failure-cases.md N11)."""

from core.settings import SettingsError
from core.store.database import Database


def check_app_role(db: Database) -> None:
    """Raises SettingsError, naming the reason, when the role of the API and the workers could see past its tenant.

    A superuser, a role with BYPASSRLS, an owner and a role of the `system` policy all skip the second wall silently.
    Raises Unavailable when Postgres cannot be asked."""
    with db.system() as tx:
        facts = tx.row("role_facts")
    if facts is None:
        raise SettingsError("MUNIMENT_DATABASE_URL: the role cannot be looked up in pg_roles")
    reasons = [
        reason
        for reason, holds in (
            ("it is a superuser", facts["superuser"]),
            ("it has BYPASSRLS", facts["bypasses_rls"]),
            (f"it owns, or may act as the owner of, {facts['owned']} tables", facts["owned"] > 0),
            ("the policy `system` lets it see every tenant", facts["sees_all"]),
        )
        if holds
    ]
    if reasons:
        raise SettingsError(
            f"MUNIMENT_DATABASE_URL: the role {facts['role']} is not bound by row-level security: {'; '.join(reasons)}. "
            "Give the API and the workers the role muniment_app"
        )
