"""`models`: profiles and who may name them; recorded replies to a file and back."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import LIMIT, AsJson, Limit

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
        typer.Option(help="A tenant's name or id that may name it; may be repeated. Else: all tenants."),
    ] = None,
) -> None:
    """Make or change a profile from JSON on standard input, e.g. {"kind": "jev", "model": "jev-1.13.0"}."""
    from api.cli.operating import find_tenant, operator_database, operator_settings
    from api.cli.output import print_json
    from core.models import granting
    from core.models.catalogue import read_file

    settings = operator_settings()
    definition = _input()
    with operator_database() as db, db.system() as tx:
        grants = "*" if not grant else [str(find_tenant(tx, one).id) for one in grant]
        filed = read_file(settings.models, settings.key_envs)
        found, _ = granting.put_profile(tx, name, definition, grants, filed=filed, key_envs=settings.key_envs)
    print_json(found.as_json())


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
    tenant: Tenant, name: Cache, file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` printed.")]
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


def _input() -> Any:
    try:
        return json.load(sys.stdin)
    except ValueError as error:
        raise typer.BadParameter(f"is no JSON: {error}", param_hint="standard input") from None
