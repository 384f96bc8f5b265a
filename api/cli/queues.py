"""`queues`: what waits, who works, and the dead letters."""

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
    from dataclasses import asdict
    from datetime import datetime

    from pydantic.alias_generators import to_camel

    from api.cli.operating import operator_database, operator_settings
    from api.cli.output import print_json, print_table
    from core.clock import rfc3339
    from core.jobs.backlog import backlog

    settings = operator_settings()
    with operator_database() as db, db.system() as tx:
        queues = backlog(tx, settings.inflight_interactive, settings.inflight_bulk)
        processes = tx.rows("processes")
    if as_json:
        shown = [
            {to_camel(name): rfc3339(value) if isinstance(value, datetime) else value for name, value in row.items()}
            | {"processId": str(row["process_id"])}
            for row in processes
        ]
        items = [{to_camel(name): value for name, value in asdict(queue).items()} for queue in queues]
        print_json({"queues": items, "processes": shown})
        return
    print_table(
        ("queue", "ready", "oldest s", "running", "parked", "deferred", "waiting", "dead"),
        [
            (
                queue.queue, queue.ready_jobs, f"{queue.ready_oldest_age_seconds:.1f}", queue.inflight_jobs,
                queue.parked_jobs, queue.deferred_jobs, queue.waiting_jobs, queue.dead_jobs,
            )
            for queue in sorted(queues, key=lambda queue: queue.queue)
        ],
    )  # fmt: skip
    print()
    print_table(
        ("process", "host", "pid", "seen s ago", "jobs done", "queues"),
        [
            (
                row["role"], row["host"], row["pid"], f"{row['silent_seconds']:.0f}", row["jobs_done"],
                ", ".join(row["queues"]),
            )
            for row in processes
        ],
    )  # fmt: skip


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
    from api.cli.operating import find_tenant, operator_database
    from core.jobs.dead import AT_ONCE, retry_dead

    _check(queue)
    total = 0
    with operator_database() as db:
        while True:
            with db.system() as tx:
                owner = None if tenant is None else find_tenant(tx, tenant).id
                count = retry_dead(tx, queue, tenant_id=owner, job_id=job)
            total += count
            if count < AT_ONCE:
                break
    print(f"{total} {'job goes' if total == 1 else 'jobs go'} back into {queue}.")


@app.command()
def purge(queue: Queue, tenant: OneTenant = None, job: OneJob = None, yes: Yes = False) -> None:
    """Delete dead jobs for good: the queue's, a tenant's, or one."""
    from api.cli.operating import find_tenant, operator_database
    from core.jobs.dead import AT_ONCE, purge_dead

    _check(queue)
    if not yes:
        typer.confirm(f"Delete dead jobs of {queue} for good?", abort=True)
    total = 0
    with operator_database() as db:
        while True:
            with db.system() as tx:
                owner = None if tenant is None else find_tenant(tx, tenant).id
                count = purge_dead(tx, queue, tenant_id=owner, job_id=job)
            total += count
            if count < AT_ONCE:
                break
    print(f"{total} dead {'job' if total == 1 else 'jobs'} of {queue} deleted.")


def _check(queue: str) -> None:
    from workers.queues import QUEUES

    if queue not in QUEUES:
        raise typer.BadParameter(f"there is no queue {queue!r}; there are {', '.join(QUEUES)}", param_hint="QUEUE")
