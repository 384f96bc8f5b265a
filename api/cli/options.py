"""Options that several commands share."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Url = Annotated[
    str | None,
    typer.Option(
        help="The API's address; else MUNIMENT_URL, else the stack that runs on the data folder.", metavar="URL"
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="A file that holds the key; else MUNIMENT_API_KEY, else `key` in the data folder.", metavar="FILE"
    ),
]
Timeout = Annotated[
    float, typer.Option(help="Seconds until an answer must come, besides the time a request itself waits.", min=0.1)
]
ConnectTimeout = Annotated[float, typer.Option(help="Seconds until the API must be reached.", min=0.1)]
StoreName = Annotated[str, typer.Option("--store", help="The store's name.", metavar="STORE")]
Limit = Annotated[int, typer.Option(help="The most items to list.", min=1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]

TIMEOUT_S = 30.0
CONNECT_S = 5.0
STORE = "journal"
LIMIT = 100

_CONNECTION = (
    ("url", Url, None),
    ("key_file", KeyFile, None),
    ("timeout", Timeout, TIMEOUT_S),
    ("connect_timeout", ConnectTimeout, CONNECT_S),
)


def client_command(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `Client`, as one that takes instead the options that say how to reach the API."""

    @wraps(command)
    def connected(**given: Any) -> None:
        from api.cli.client import connect

        with connect(*(given.pop(name) for name, _, _ in _CONNECTION)) as client:
            command(client, **given)

    _, *own = inspect.signature(command).parameters.values()
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in _CONNECTION
    ]
    # Typer reads a command's options from its signature and its annotations.
    connected.__signature__ = inspect.Signature([*own, *options])  # pyright: ignore[reportAttributeAccessIssue]
    connected.__annotations__ = {option.name: option.annotation for option in (*own, *options)}
    return connected
