"""`models`: profiles and who may name them; recorded replies to a file and back."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import LIMIT, AsJson, Limit

if TYPE_CHECKING:
    from core.models.granting import Grant

app = typer.Typer(no_args_is_help=True, help="Profiles of models and embeddings, and who may name them.")
cache = typer.Typer(no_args_is_help=True, help="Recorded replies of evaluations (MUNIMENT_ALLOW_MODEL_CACHE).")
app.add_typer(cache, name="cache")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name or id.")]
Cache = Annotated[str, typer.Argument(metavar="CACHE", help="As stores name it in `modelCache`.")]


@app.command("list")
def list_profiles(limit: Limit = LIMIT, as_json: AsJson = False) -> None:
    """Profiles of the file MUNIMENT_MODELS, then those of the table. None holds a key."""
    from api.cli.operating import operator_database, operator_settings
    from api.cli.output import print_items
    from core.models import granting
    from core.models.catalogue import read_file

    settings = operator_settings()
    filed = read_file(settings.models, settings.key_envs)
    with operator_database() as db, db.system() as tx:
        found = granting.list_profiles(tx, limit=limit)
    items = [granting.of_file(name, filed[name]).as_json() for name in sorted(filed)] + [one.as_json() for one in found]
    for item in items:
        item["kind"], item["model"] = item["profile"].get("kind"), item["profile"].get("model")
    print_items(items, ("name", "source", "kind", "model", "grants"), as_json=as_json)


@app.command("set")
def set_profile(
    name: Name,
    grant: Annotated[
        list[str] | None,
        typer.Option(help="A tenant's name or id that may name it; may be repeated."),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All tenants may name it, also later ones.")] = False,
) -> None:
    """Make or change a profile from JSON on standard input, e.g. {"kind": "jev", "model": "jev-1.13.0"}.

    Without --grant and --all, a new profile is for all tenants, and one that exists keeps its grants."""
    from api.cli.operating import find_tenant, operator_database, operator_settings
    from api.cli.output import print_json
    from core.models import granting
    from core.models.catalogue import read_file

    if grant and everyone:
        raise typer.BadParameter("is for some tenants, --all for every one: choose", param_hint="--grant")
    settings = operator_settings()
    definition = _input()
    with operator_database() as db, db.system() as tx:
        grants: Any = "*" if everyone else granting.grants_of(tx, name, otherwise="*")
        if grant:
            grants = [str(find_tenant(tx, one).id) for one in grant]
        filed = read_file(settings.models, settings.key_envs)
        found, _ = granting.put_profile(tx, name, definition, grants, filed=filed, key_envs=settings.key_envs)
    print_json(found.as_json())


@app.command()
def grant(name: Name, tenant: Tenant) -> None:
    """Let one more tenant name a profile of the table."""
    from core.models import granting

    _change_grants(granting.grant, name, tenant)


@app.command()
def revoke(name: Name, tenant: Tenant) -> None:
    """Take a profile from one tenant: calls of its stores that name it are refused within seconds."""
    from core.models import granting

    _change_grants(granting.revoke, name, tenant)


@app.command()
def delete(name: Name) -> None:
    """Delete a profile that no store names."""
    from api.cli.operating import operator_database
    from core.models import granting

    with operator_database() as db, db.system() as tx:
        granting.delete_profile(tx, name)


@cache.command("export")
def export_cache(tenant: Tenant, name: Cache) -> None:
    """Print a cache as JSON lines. They quote the evidence that models were given: keep them private."""
    from api.cli.operating import find_tenant, operator_database
    from core.models import replay

    with operator_database() as db:
        with db.system() as tx:
            found = find_tenant(tx, tenant).id
        for line in replay.exported(db, found, name):
            print(line)


@cache.command("import")
def import_cache(
    tenant: Tenant,
    name: Cache,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `export` printed.", exists=True, dir_okay=False, readable=True)
    ],
) -> None:
    """Add recorded replies to a cache; the same request's newer reply wins."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import note
    from core.models import replay

    with operator_database() as db, file.open(encoding="utf-8") as lines:
        with db.system() as tx:
            found = find_tenant(tx, tenant).id
        note(f"{replay.imported(db, found, name, lines)} replies")


@cache.command("clear")
def clear_cache(tenant: Tenant, name: Cache) -> None:
    """Delete a cache."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import note
    from core.models import replay

    with operator_database() as db:
        with db.system() as tx:
            found = find_tenant(tx, tenant).id
        note(f"{replay.cleared(db, found, name)} replies deleted")


def _change_grants(change: "Callable[..., Grant]", name: str, tenant: str) -> None:
    from api.cli.operating import find_tenant, operator_database, operator_settings
    from api.cli.output import print_json
    from core.models.catalogue import read_file

    settings = operator_settings()
    filed = read_file(settings.models, settings.key_envs)
    with operator_database() as db, db.system() as tx:
        print_json(change(tx, name, find_tenant(tx, tenant).id, filed=filed).as_json())


def _input() -> object:
    from core.jsontext import loads

    return loads(sys.stdin.buffer.read(), "standard input")
