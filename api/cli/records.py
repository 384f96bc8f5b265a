"""`records`: what a store holds, exactly."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.options import (
    LIMIT,
    STORE,
    AsJson,
    Limit,
    StoreName,
    Yes,
    client_command,
)

if TYPE_CHECKING:
    from api.cli.client import Client

app = typer.Typer(no_args_is_help=True, help="Look at records, or erase them.")

Id = Annotated[str, typer.Argument(metavar="ID", help="A document's id, or a block's.")]
Revision = Annotated[int | None, typer.Option(help="As the store was at this revision; left out, now.", min=0)]
ERASE_WAIT_S = 60.0


@app.command("list")
@client_command
def list_records(
    client: "Client",
    store: StoreName = STORE,
    limit: Limit = LIMIT,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """Documents and blocks in the order they were written."""
    from api.cli.client import quoted
    from api.cli.output import print_items

    items = client.items(f"/stores/{quoted(store)}/records", limit, {"revision": revision})
    print_items(items, ("id", "kind", "revision", "eventAt", "session", "sha256"), as_json=as_json)


@app.command()
@client_command
def show(
    client: "Client",
    record: Id,
    store: StoreName = STORE,
    revision: Revision = None,
) -> None:
    """Print the record's exact bytes: their SHA-256 is its proof."""
    from api.cli.client import quoted

    answer = client.send("GET", f"/stores/{quoted(store)}/records/{quoted(record)}", query={"revision": revision})
    sys.stdout.buffer.write(answer.content)


@app.command()
@client_command
def messages(
    client: "Client",
    document: Id,
    store: StoreName = STORE,
    limit: Limit = LIMIT,
) -> None:
    """Print a conversation's messages word for word, as JSON."""
    from api.cli.client import quoted
    from api.cli.output import print_json

    print_json({"items": client.items(f"/stores/{quoted(store)}/records/{quoted(document)}/messages", limit)})


@app.command()
@client_command
def delete(
    client: "Client",
    record: Id,
    store: StoreName = STORE,
    yes: Yes = False,
) -> None:
    """Erase a document with its blocks and messages, for good; print the receipt."""
    from api.cli.client import quoted
    from api.cli.output import print_json

    if not yes:
        typer.confirm(f"Erase {record} of {store} for good?", abort=True)
    _, outcome = client.run(
        f"/stores/{quoted(store)}/records/{quoted(record)}", None, method="DELETE", wait=ERASE_WAIT_S
    )
    print_json(outcome)
