"""`tenants`: who there is, and what each may use."""

from typing import Annotated, Any

import typer

from api.cli.options import LIMIT, AsJson, Limit

app = typer.Typer(no_args_is_help=True, help="Make tenants, list them, set their limits.")

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name or id.")]
Weight = Annotated[int | None, typer.Option(help="Share in the relay's round-robin, 1 to 100.")]
QueuedJobs = Annotated[int | None, typer.Option("--max-queued-jobs", help="Jobs that may wait at once.")]
QueuedBytes = Annotated[int | None, typer.Option("--max-queued-bytes", help="Bytes that may wait at once.")]
StoredBytes = Annotated[str | None, typer.Option("--max-stored-bytes", help="A number, or `none` for no limit.")]
Requests = Annotated[str | None, typer.Option("--max-requests-per-second", help="A number, or `none` for no limit.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that no other tenant has.")],
    weight: Weight = None,
    queued_jobs: QueuedJobs = None,
    queued_bytes: QueuedBytes = None,
    stored_bytes: StoredBytes = None,
    requests: Requests = None,
) -> None:
    """Make a tenant with the store `journal`; it has no key yet."""
    from api.cli.operating import operator_database
    from api.cli.output import print_json
    from core.tenants.tenants import create_tenant

    changes = _changes(weight, queued_jobs, queued_bytes, stored_bytes, requests)
    with operator_database() as db, db.system() as tx:
        tenant = create_tenant(tx, name, changes)
    print_json(tenant.as_json())


@app.command("list")
def list_tenants(limit: Limit = LIMIT, as_json: AsJson = False) -> None:
    """Tenants, oldest first."""
    from api.cli.operating import operator_database
    from api.cli.output import print_items
    from core.tenants import tenants

    with operator_database() as db, db.system() as tx:
        items = [tenant.as_json() for tenant in tenants.list_tenants(tx, limit=limit)]
    columns = ("id", "name", "weight", "maxQueuedJobs", "maxQueuedBytes", "maxStoredBytes", "maxRequestsPerSecond")
    print_items(items, columns, as_json=as_json)


@app.command("set")
def set_limits(
    tenant: Tenant,
    weight: Weight = None,
    queued_jobs: QueuedJobs = None,
    queued_bytes: QueuedBytes = None,
    stored_bytes: StoredBytes = None,
    requests: Requests = None,
) -> None:
    """Change a tenant's limits: those that are given."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_json
    from core.tenants import tenants

    changes = _changes(weight, queued_jobs, queued_bytes, stored_bytes, requests)
    if changes is None:
        raise typer.BadParameter("give at least one limit to change", param_hint="limits")
    with operator_database() as db, db.system() as tx:
        changed = tenants.set_limits(tx, find_tenant(tx, tenant).id, changes)
    print_json(changed.as_json())


def _changes(weight: Weight, jobs: QueuedJobs, queued: QueuedBytes, stored: StoredBytes, requests: Requests) -> Any:
    """A LimitChanges of what is given; None when nothing is. Raises typer.BadParameter."""
    from pydantic import ValidationError

    from core.tenants.tenants import LimitChanges
    from core.wording import plain

    given: dict[str, object] = {
        name: value
        for name, value in (("weight", weight), ("max_queued_jobs", jobs), ("max_queued_bytes", queued))
        if value is not None
    }
    for name, text in (("max_stored_bytes", stored), ("max_requests_per_second", requests)):
        if text is not None:
            given[name] = None if text == "none" else int(text) if text.isascii() and text.isdigit() else text
    try:
        return LimitChanges.model_validate(given) if given else None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise typer.BadParameter(plain(first), param_hint=f"--{option}") from error
