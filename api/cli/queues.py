"""`queues`: what waits, who works, and the dead letters."""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

import typer

from api.cli.options import LIMIT, AsJson, Limit, Yes

app = typer.Typer(
    invoke_without_command=True, help="Show the backlog and who works; list, retry or purge dead letters."
)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="For example write.interactive; see `muniment queues`.")]
OneTenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's, by name or id.", metavar="TENANT")]
OneJob = Annotated[UUID | None, typer.Option("--job", help="Only this job.", metavar="JOB")]


@app.callback()
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """The backlog by queue, and the processes that have reported."""
    if context.invoked_subcommand is not None:
        return
    from api.cli.operating import operator_database, operator_settings
    from api.cli.output import print_json, print_table
    from api.fleet import fleet

    with operator_database() as db, db.system() as tx:
        found = fleet(tx, operator_settings())
    if as_json:
        print_json(found)
        return
    print_table(
        ("queue", "ready", "oldest s", "running", "parked", "deferred", "waiting", "dead"),
        [
            (
                row["queue"], row["readyJobs"], f"{row['readyOldestAgeSeconds']:.1f}", row["inflightJobs"],
                row["parkedJobs"], row["deferredJobs"], row["waitingJobs"], row["deadJobs"],
            )
            for row in found["queues"]
        ],
    )  # fmt: skip
    print()
    print_table(
        ("process", "host", "pid", "seen s ago", "jobs done", "queues"),
        [
            (row["role"], row["host"], row["pid"], f"{row['silentSeconds']:.0f}", row["jobsDone"], row["queues"])
            for row in found["processes"]
        ],
    )


@app.command()
def dead(queue: Queue, tenant: OneTenant = None, limit: Limit = LIMIT, as_json: AsJson = False) -> None:
    """Jobs that have used up their attempts, oldest death first, each with why."""
    from api.cli.operating import find_tenant, operator_database
    from api.cli.output import print_json, print_table
    from core.jobs.dead import list_dead

    _check(queue)
    with operator_database() as db, db.system() as tx:
        owner = None if tenant is None else find_tenant(tx, tenant).id
        items = [job.as_json() for job in list_dead(tx, queue, tenant_id=owner, limit=limit)]
    if as_json:
        print_json({"items": items})
        return
    columns = ("id", "tenant", "kind", "store", "attempt", "finishedAt", "why")
    rows = ([*(item.get(column) for column in columns[:-1]), item.get("error", {}).get("detail")] for item in items)
    print_table(columns, rows)


@app.command()
def retry(queue: Queue, tenant: OneTenant = None, job: OneJob = None) -> None:
    """Give dead jobs all their attempts again: the queue's, a tenant's, or one."""
    from core.jobs.dead import retry_dead

    _check(queue)
    total = _all(retry_dead, queue, tenant, job)
    print(f"{total} {'job goes' if total == 1 else 'jobs go'} back into {queue}.")


@app.command()
def purge(queue: Queue, tenant: OneTenant = None, job: OneJob = None, yes: Yes = False) -> None:
    """Delete dead jobs for good: the queue's, a tenant's, or one."""
    from core.jobs.dead import purge_dead

    _check(queue)
    if not yes:
        typer.confirm(f"Delete dead jobs of {queue} for good?", abort=True)
    total = _all(purge_dead, queue, tenant, job)
    print(f"{total} dead {'job' if total == 1 else 'jobs'} of {queue} deleted.")


def _all(act: Callable[..., int], queue: str, tenant: str | None, job: UUID | None) -> int:
    """`act` on dead jobs, some in each transaction, until none of them is left; how many there were."""
    from api.cli.operating import find_tenant, operator_database
    from core.jobs.dead import AT_ONCE

    total, count = 0, AT_ONCE
    with operator_database() as db:
        while count == AT_ONCE:
            with db.system() as tx:
                owner = None if tenant is None else find_tenant(tx, tenant).id
                count = act(tx, queue, tenant_id=owner, job_id=job)
            total += count
    return total


def _check(queue: str) -> None:
    from workers.queues import QUEUES

    if queue not in QUEUES:
        raise typer.BadParameter(f"there is no queue {queue!r}; there are {', '.join(QUEUES)}", param_hint="QUEUE")
