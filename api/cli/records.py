"""`records`: what a store holds, exactly."""

import sys
from typing import Annotated

import typer

from api.cli.options import (
    CONNECT_S,
    LIMIT,
    STORE,
    TIMEOUT_S,
    AsJson,
    ConnectTimeout,
    KeyFile,
    Limit,
    StoreName,
    Timeout,
    Url,
    Yes,
)

app = typer.Typer(no_args_is_help=True, help="Look at records, or erase them.")

Id = Annotated[str, typer.Argument(metavar="ID", help="A document's id, or a block's.")]
Revision = Annotated[int | None, typer.Option(help="As the store was at this revision; left out, now.", min=0)]
ERASE_WAIT_S = 60.0


@app.command("list")
def list_records(
    store: StoreName = STORE,
    limit: Limit = LIMIT,
    revision: Revision = None,
    as_json: AsJson = False,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Documents and blocks in the order they were written."""
    from api.cli.client import connect
    from api.cli.output import print_items

    with connect(url, key_file, timeout, connect_timeout) as client:
        items = client.items(f"/stores/{store}/records", limit, {"revision": revision})
    print_items(items, ("id", "kind", "revision", "eventAt", "session", "sha256"), as_json=as_json)


@app.command()
def show(
    record: Id,
    store: StoreName = STORE,
    revision: Revision = None,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Print the record's exact bytes: their SHA-256 is its proof."""
    from api.cli.client import connect, quoted

    with connect(url, key_file, timeout, connect_timeout) as client:
        answer = client.send("GET", f"/stores/{store}/records/{quoted(record)}", query={"revision": revision})
    sys.stdout.buffer.write(answer.content)


@app.command()
def messages(
    document: Id,
    store: StoreName = STORE,
    limit: Limit = LIMIT,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Print a conversation's messages word for word, as JSON."""
    from api.cli.client import connect, quoted
    from api.cli.output import print_json

    with connect(url, key_file, timeout, connect_timeout) as client:
        print_json({"items": client.items(f"/stores/{store}/records/{quoted(document)}/messages", limit)})


@app.command()
def delete(
    record: Id,
    store: StoreName = STORE,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Erase a document with its blocks and messages, for good; print the receipt."""
    from api.cli.client import connect, quoted
    from api.cli.output import print_json

    if not yes:
        typer.confirm(f"Erase {record} of {store} for good?", abort=True)
    with connect(url, key_file, timeout, connect_timeout) as client:
        _, outcome = client.run(f"/stores/{store}/records/{quoted(record)}", None, method="DELETE", wait=ERASE_WAIT_S)
    print_json(outcome)
