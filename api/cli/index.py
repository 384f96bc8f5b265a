"""`index`: the lexical index of a store."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Build a store's lexical index anew.")


@app.command()
def rebuild(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name or id.")],
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")],
) -> None:
    """Ask for a job that indexes the store's records anew; searches use the present index until it is done."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_json
    from core.search.lexical.writing import request_job
    from core.tenants.stores import store_id_of

    with operator_database() as db, db.system() as tx:
        tenant_id = find_tenant(tx, tenant).id
        job = request_job(tx, tenant_id, store_id_of(tx, tenant_id, store), rebuild=True)
    print_json({"job": str(job)})
