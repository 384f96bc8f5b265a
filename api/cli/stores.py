"""`stores`: a tenant's memories and their configuration."""

from typing import Annotated

import typer

from api.cli.options import CONNECT_S, LIMIT, TIMEOUT_S, AsJson, ConnectTimeout, KeyFile, Limit, Timeout, Url, Yes

app = typer.Typer(no_args_is_help=True, help="Make, show, configure and erase stores.")

Name = Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")]
ERASE_WAIT_S = 300.0


@app.command("list")
def list_stores(
    limit: Limit = LIMIT,
    as_json: AsJson = False,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """The tenant's stores, by name."""
    from api.cli.client import connect
    from api.cli.output import print_items

    with connect(url, key_file, timeout, connect_timeout) as client:
        items = client.items("/stores", limit)
    print_items(items, ("name", "revision", "storedBytes", "createdAt", "policyHash"), as_json=as_json)


@app.command()
def show(
    store: Name,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """A store and its effective configuration, as JSON; its ETag on standard error."""
    from api.cli.client import connect, quoted
    from api.cli.output import note, print_json

    with connect(url, key_file, timeout, connect_timeout) as client:
        answer = client.send("GET", f"/stores/{quoted(store)}")
    print_json(answer.json())
    note(f"ETag: {answer.headers['ETag']}")


@app.command()
def put(
    store: Name,
    config: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(metavar="FILE", help="The configuration as JSON, - for standard input; left out: the defaults."),
    ] = None,
    if_match: Annotated[str | None, typer.Option(metavar="ETAG", help="Only if this is still its ETag.")] = None,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Make a store, or replace its whole configuration."""
    from api.cli.client import connect, quoted
    from api.cli.output import print_json

    headers = {} if if_match is None else {"If-Match": if_match}
    body = None if config is None else config.read()
    with connect(url, key_file, timeout, connect_timeout) as client:
        print_json(client.send("PUT", f"/stores/{quoted(store)}", body=body, headers=headers).json())


@app.command()
def delete(
    store: Name,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Erase a store with everything in it, for good; print the receipt."""
    from api.cli.client import connect, quoted
    from api.cli.output import print_json

    if not yes:
        typer.confirm(f"Erase the store {store} and everything in it for good?", abort=True)
    with connect(url, key_file, timeout, connect_timeout) as client:
        _, outcome = client.run(f"/stores/{quoted(store)}", None, method="DELETE", wait=ERASE_WAIT_S)
    print_json(outcome)
