"""`stores`: a tenant's memories and their configuration."""

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.options import LIMIT, AsJson, Limit, Yes, client_command

if TYPE_CHECKING:
    from api.cli.client import Client

app = typer.Typer(no_args_is_help=True, help="Make, show, configure and erase stores.")

Name = Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")]
ERASE_WAIT_S = 300.0


@app.command("list")
@client_command
def list_stores(
    client: "Client",
    limit: Limit = LIMIT,
    as_json: AsJson = False,
) -> None:
    """The tenant's stores, by name."""
    from api.cli.output import print_items

    items = client.items("/stores", limit)
    print_items(items, ("name", "revision", "storedBytes", "createdAt", "policyHash"), as_json=as_json)


@app.command()
@client_command
def show(
    client: "Client",
    store: Name,
) -> None:
    """A store and its effective configuration, as JSON; its ETag on standard error."""
    from api.cli.client import quoted
    from api.cli.output import note, print_json

    answer = client.send("GET", f"/stores/{quoted(store)}")
    print_json(answer.json())
    note(f"ETag: {answer.headers['ETag']}")


@app.command()
@client_command
def put(
    client: "Client",
    store: Name,
    config: Annotated[
        typer.FileBinaryRead | None,
        typer.Option(metavar="FILE", help="The configuration as JSON, - for standard input; left out: the defaults."),
    ] = None,
    if_match: Annotated[str | None, typer.Option(metavar="ETAG", help="Only if this is still its ETag.")] = None,
) -> None:
    """Make a store, or replace its whole configuration."""
    from api.cli.client import quoted
    from api.cli.output import print_json

    headers = {} if if_match is None else {"If-Match": if_match}
    body = None if config is None else config.read()
    print_json(client.send("PUT", f"/stores/{quoted(store)}", body=body, headers=headers).json())


@app.command()
@client_command
def delete(
    client: "Client",
    store: Name,
    yes: Yes = False,
) -> None:
    """Erase a store with everything in it, for good; print the receipt."""
    from api.cli.client import quoted
    from api.cli.output import print_json

    if not yes:
        typer.confirm(f"Erase the store {store} and everything in it for good?", abort=True)
    _, outcome = client.run(f"/stores/{quoted(store)}", None, method="DELETE", wait=ERASE_WAIT_S)
    print_json(outcome)
