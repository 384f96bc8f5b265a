"""`budget`: the operator's caps and what was spent of them."""

from typing import Annotated, Any

import typer

from api.cli.options import AsJson

app = typer.Typer(no_args_is_help=True, help="Show caps and spending; set caps of providers, tenants and jobs.")

Tenant = Annotated[str | None, typer.Option("--tenant", metavar="TENANT", help="A tenant's name or id.")]
COLUMNS = ("scope", "provider", "currency", "store", "cap", "jobCap", "spent", "reserved")
LARGEST_LIST = 1_000


@app.command()
def show(tenant: Tenant = None, as_json: AsJson = False) -> None:
    """Every provider's cap and spending over all tenants; with --tenant, that tenant's and its stores'."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_items
    from core.budget import caps

    with operator_database() as db, db.system() as tx:
        if tenant is None:
            found = caps.accounts(tx)
        else:
            found = caps.spenders(tx, find_tenant(tx, tenant).id, None, None, LARGEST_LIST)
    print_items([cap.as_json() for cap in found], COLUMNS, as_json=as_json)


@app.command("set")
def set_cap(
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="jev, deepseek, openai or systemone.")],
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="In whole units of its currency, or `none`.")],
    tenant: Tenant = None,
    job: Annotated[bool, typer.Option("--job", help="The cap of each single job, instead.")] = False,
) -> None:
    """Set one cap; what was spent is kept, and jobs that wait for money go on.

    A provider's own cap cannot be `none`. Where MUNIMENT_BUDGETS is set, each process that starts with it writes it over a
    provider's cap again."""
    from api.cli.operating import find_tenant, operator_database
    from core.budget import caps

    given = {provider: _amount(provider, amount)}
    with operator_database() as db, db.system() as tx:
        if tenant is not None:
            tenant_id = find_tenant(tx, tenant).id
            caps.set_tenant_caps(tx, tenant_id, {} if job else given, given if job else {})
        elif job:
            caps.set_provider_caps(tx, {}, given)
        else:
            known = {name: cap for name, cap in given.items() if cap is not None}
            if not known:
                raise typer.BadParameter("a provider always has a cap; 0 stops all spending", param_hint="AMOUNT")
            caps.set_provider_caps(tx, known, {})
    show(tenant)


def _amount(provider: str, text: str) -> int | None:
    from core.budget.model import parse_caps

    try:
        parsed: dict[str, Any] = parse_caps({provider: "0" if text == "none" else text})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return None if text == "none" else parsed[provider]
