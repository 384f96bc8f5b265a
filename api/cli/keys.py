"""`keys`: of tenants and of operators."""

from datetime import timedelta
from typing import Annotated

import typer

from api.cli.options import LIMIT, AsJson, Limit

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke keys.")

Tenant = Annotated[str | None, typer.Argument(metavar="[TENANT]", help="The tenant's name or id.")]
Operator = Annotated[
    bool, typer.Option("--operator", help="An operator's key: for no tenant, and for /v1/admin alone.")
]
DEFAULT_SCOPES = ["read", "write"]


@app.command()
def create(
    tenant: Tenant = None,
    operator: Operator = False,
    name: Annotated[str, typer.Option(help="What the key is for.")] = "cli",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, write, consolidate or manage; may be given again. Else read and write."),
    ] = None,
    store: Annotated[list[str] | None, typer.Option(help="Only for this store; may be given again.")] = None,
    days: Annotated[int | None, typer.Option(help="Days until it expires; left out, never.", min=1, max=36_500)] = None,
) -> None:
    """Make a key and print it with its secret, which nobody can read again."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_json
    from core.clock import now
    from core.tenants import keys

    _check(tenant, operator)
    if operator and (scope or store):
        raise typer.BadParameter("an operator's key has no scopes and no stores", param_hint="--operator")
    expires_at = None if days is None else now() + timedelta(days=days)
    with operator_database() as db, db.system() as tx:
        if tenant is None:
            key, secret = keys.create_operator_key(tx, name, expires_at)
        else:
            owner = find_tenant(tx, tenant).id
            key, secret = keys.create_key(tx, owner, name, scope or DEFAULT_SCOPES, store or None, expires_at)
    print_json({**key.as_json(), "secret": secret})


@app.command("list")
def list_keys(tenant: Tenant = None, operator: Operator = False, limit: Limit = LIMIT, as_json: AsJson = False) -> None:
    """A tenant's keys, or the operators', oldest first, revoked ones too."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_items
    from core.tenants import keys

    _check(tenant, operator)
    with operator_database() as db, db.system() as tx:
        owner = None if tenant is None else find_tenant(tx, tenant).id
        items = [key.as_json() for key in keys.list_keys(tx, owner, limit=limit)]
    print_items(items, ("id", "name", "scopes", "stores", "createdAt", "expiresAt", "revokedAt"), as_json=as_json)


@app.command()
def revoke(key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id (not its secret).")]) -> None:
    """End a key for good. API processes trust what they looked up for MUNIMENT_AUTH_CACHE_SECONDS (5 unless set)."""
    from uuid import UUID

    from api.cli.operating import operator_database
    from core.tenants import keys

    try:
        key_id = UUID(key)
    except ValueError as error:
        raise typer.BadParameter("this is not a key's id; see `muniment keys list`", param_hint="KEY") from error
    with operator_database() as db, db.system() as tx:
        keys.revoke(tx, key_id)
    print(f"Revoked {key_id}. Every process refuses it within MUNIMENT_AUTH_CACHE_SECONDS (5 unless set).")


def _check(tenant: str | None, operator: bool) -> None:
    if (tenant is None) != operator:
        raise typer.BadParameter("give a tenant, or --operator", param_hint="TENANT")
