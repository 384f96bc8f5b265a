"""`jobs`: what was accepted, and how far it is."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import LIMIT, AsJson, Limit, client_command

if TYPE_CHECKING:
    from api.cli.client import Client

app = typer.Typer(no_args_is_help=True, help="Look at jobs, follow, cancel, retry and delete them.")

Id = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
WATCH_S = 24 * 3600.0


@app.command("list")
@client_command
def list_jobs(
    client: "Client",
    state: Annotated[list[str] | None, typer.Option(help="Only jobs in this state; may be given again.")] = None,
    store: Annotated[str | None, typer.Option(help="Only jobs of this store.", metavar="STORE")] = None,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """Jobs, newest first."""
    from api.cli.output import print_items

    items = client.items("/jobs", limit, {"state": state, "store": store})
    print_items(items, ("id", "kind", "lane", "store", "state", "attempt", "createdAt", "finishedAt"), as_json=as_json)


@app.command()
@client_command
def show(
    client: "Client",
    job: Id,
) -> None:
    """A job with its result or its error, as JSON."""
    from api.cli.client import quoted
    from api.cli.output import print_json

    print_json(client.get(f"/jobs/{quoted(job)}"))


@app.command()
@client_command
def watch(
    client: "Client",
    job: Id,
    seconds: Annotated[float, typer.Option("--for", help="Stop watching after so many seconds.", min=0)] = WATCH_S,
) -> None:
    """Follow a job to its end; then print it as JSON. Exit status 1 when it ended badly."""
    from api.cli.client import ended_badly
    from api.cli.output import note, print_json
    from core.jobs.model import TERMINAL

    last: dict[str, Any] = {}
    shown = ""
    for last in client.follow(job, seconds):
        if (text := describe(last)) != shown:
            note(text)
            shown = text
    print_json(last)
    if last["state"] in TERMINAL - {"succeeded"}:
        raise ended_badly(last)


@app.command()
@client_command
def cancel(
    client: "Client",
    job: Id,
) -> None:
    """End a job and its children; nothing that a running attempt did is kept."""

    _act(client, job, "cancel")


@app.command()
@client_command
def retry(
    client: "Client",
    job: Id,
) -> None:
    """Give a dead job all its attempts again."""

    _act(client, job, "retry")


@app.command()
@client_command
def delete(
    client: "Client",
    job: Id,
) -> None:
    """Delete an ended job with its result; what it wrote stays."""
    from api.cli.client import quoted

    client.send("DELETE", f"/jobs/{quoted(job)}")
    print(f"Deleted {job}.")


def describe(job: dict[str, Any]) -> str:
    """`running, attempt 1, 40 of 120 messages`."""
    parts = [str(job["state"])]
    if job.get("reason"):
        parts.append(str(job["reason"]))
    if job.get("attempt"):
        parts.append(f"attempt {job['attempt']}")
    if job.get("runAt"):
        parts.append(f"next try at {job['runAt']}")
    progress = job.get("progress")
    if progress:
        total = "" if progress.get("total") is None else f" of {progress['total']}"
        parts.append(f"{progress['done']}{total} {progress['unit']}")
    return ", ".join(parts)


def _act(client: "Client", job: str, verb: str) -> None:
    from api.cli.client import quoted
    from api.cli.output import print_json
    from core.ids import token

    headers = {"Idempotency-Key": f"cli-{token()}"}
    print_json(client.send("POST", f"/jobs/{quoted(job)}/{verb}", headers=headers).json())
