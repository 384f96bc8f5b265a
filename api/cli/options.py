"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

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
