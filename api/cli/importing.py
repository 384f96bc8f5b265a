"""`import`: an archive of conversations, and the report of what became of it."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import STORE, AsJson, StoreName, client_command

if TYPE_CHECKING:
    from rich.console import Console

    from api.cli.client import Client

WAIT_S = 24 * 3600.0


@client_command
def import_archive(
    client: "Client",
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, help="A ChatGPT export: the zip or conversations.json."
        ),
    ],
    store: StoreName = STORE,
    resume: Annotated[str | None, typer.Option(metavar="IMPORT", help="Go on with this interrupted upload.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: only start it.", min=0)] = WAIT_S,
    as_json: AsJson = False,
) -> None:
    """Import an archive of conversations, and report what was kept and what was left out."""
    from rich.console import Console

    from api.cli import archives
    from api.cli.output import note, print_json
    from core.errors import InvalidRequest

    if not file.stat().st_size:
        raise InvalidRequest(f"{file} is empty: export or download it again")
    import_id = resume or archives.create(client, store, file)
    note(f"Import {import_id}. If this is interrupted: muniment import {quote(str(file))} --resume {import_id}")
    found = run(client, import_id, file, wait, Console(stderr=True))
    if as_json:
        print_json(found)
    else:
        print_report(found, Console())
    if problem := archives.ended_badly(found):
        raise problem
    if found["state"] not in archives.ENDED:
        note(f"It goes on: muniment jobs watch {found['job']}")


def run(client: "Client", import_id: str, file: Path, wait: float, console: "Console") -> dict[str, Any]:
    """Uploads, starts and follows an import with a progress bar; what it was when last looked at."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from api.cli import archives

    size = file.stat().st_size
    found: dict[str, Any] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("Uploading", total=size, detail="")
        for done in archives.upload(client, import_id, file):
            progress.update(bar, completed=done, detail=f"{done:,} of {size:,} bytes")
        archives.start(client, import_id)
        bar = progress.add_task("Importing", total=None, detail="")
        for found in archives.follow(client, import_id, wait):
            report = found.get("report", {})
            now = found.get("progress", {"done": 0, "total": None})
            progress.update(bar, completed=now["done"], total=now["total"], detail=_counts(report))
        if found["state"] == "succeeded":
            progress.update(bar, completed=1, total=1)
    return found


def print_report(found: dict[str, Any], console: "Console") -> None:
    """What was kept and what was left out, every item counted."""
    from rich.text import Text

    report = found.get("report", {})
    span = f", {report['firstAt'][:10]} to {report['lastAt'][:10]}" if "firstAt" in report else ""
    counts = f": {_counts(report)}{span}" if report else ""
    console.print(Text(f"Import {found['state']}{counts}"), soft_wrap=True)
    for line in _left_out(report):
        console.print(Text(line), soft_wrap=True)


def _counts(report: dict[str, Any]) -> str:
    if not report:
        return ""
    return f"{report['conversations']} conversations, {report['messages']} messages"


def _left_out(report: dict[str, Any]) -> Iterator[str]:
    if report.get("alreadyThere"):
        yield f"  {report['alreadyThere']} documents were there already"
    skipped = report.get("skipped", [])
    if skipped:
        yield f"  Left out: {sum(entry['count'] for entry in skipped)} items"
    for entry in skipped:
        yield f"    {entry['count']:>6}  {entry['reason']} (first: {entry['examples'][0]})"
    if report.get("failedDocuments"):
        yield f"  Failed: {report['failedDocuments']} documents"
    for entry in report.get("failed", []):
        yield f"    {entry['document']}: {entry['error']}"
