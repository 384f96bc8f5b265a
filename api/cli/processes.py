"""The processes of a fleet, and the migrations before them. All their settings come from the environment."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from core.settings import Settings


def api() -> None:
    """Serve the HTTP API."""
    settings = _begin()
    from api.serve import serve

    serve(settings)


def worker(
    group: Annotated[str, typer.Argument(help="fast, model, bulk or background.", metavar="GROUP")],
) -> None:
    """Work on the queues of one worker group."""
    from workers.queues import GROUPS

    if group not in GROUPS:
        raise typer.BadParameter(f"there is no group {group!r}; there are {', '.join(GROUPS)}", param_hint="GROUP")
    settings = _begin()
    from workers.main import run_worker

    run_worker(settings, group)


def relay() -> None:
    """Send wake-ups, and mend what workers and Redis have lost."""
    settings = _begin()
    from workers.relay import run_relay

    run_relay(settings)


def exporter() -> None:
    """Show the backlog to Prometheus."""
    settings = _begin()
    from workers.exporter import run_exporter

    run_exporter(settings)


def rehearsal() -> None:
    """Serve the rehearsal models: rules in the place of models, to see everything without a key."""
    settings = _begin()
    from workers.embedded.rehearsal.server import run_rehearsal

    run_rehearsal(settings)


def migrate(
    bootstrap: Annotated[
        str | None,
        typer.Option(
            metavar="ADMIN_URL",
            help="First make roles, database and pgvector extension, as this superuser; leave its password to PGPASSWORD.",
        ),
    ] = None,
    passwords: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='With --bootstrap: JSON, the passwords to set, {"app": …, "relay": …, "exporter": …}. The owner\'s and the '
            "database's name are those of MUNIMENT_DATABASE_URL.",
        ),
    ] = None,
) -> None:
    """Bring the database up to this version. Safe at any time, and from several places at once."""
    from core.settings import load
    from core.store import migrate as migrations

    owner_url = load().direct_url
    if bootstrap is not None:
        migrations.bootstrap(bootstrap, *_wanted(owner_url, passwords))
    elif passwords is not None:
        raise typer.BadParameter("needs --bootstrap", param_hint="--passwords")
    applied = migrations.migrate(owner_url)
    print(f"Applied {', '.join(applied)}." if applied else "Nothing was pending.")


def _wanted(owner_url: str, file: Path | None) -> tuple[dict[str, str], str]:
    """The passwords by role and the database's name. Raises typer.BadParameter."""
    from typing import Literal
    from urllib.parse import unquote, urlsplit

    from pydantic import TypeAdapter

    parts = urlsplit(owner_url)
    wanted: dict[Literal["app", "relay", "exporter", "owner"], str] = {}
    if file is not None:
        try:
            wanted = TypeAdapter(dict[Literal["app", "relay", "exporter", "owner"], str]).validate_json(
                file.read_bytes()
            )
        except OSError as error:
            raise typer.BadParameter(str(error), param_hint="--passwords") from error
        except ValueError:  # its text would show the passwords
            raise typer.BadParameter("must be a JSON object of roles and passwords", param_hint="--passwords") from None
    if parts.password:
        wanted["owner"] = unquote(parts.password)
    return dict(wanted.items()), unquote(parts.path.lstrip("/"))


def _begin() -> "Settings":
    from core.settings import load
    from workers import logs

    settings = load()
    logs.configure(settings.log)
    return settings
