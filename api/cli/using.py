"""`usage`: what a tenant has used, and its caps."""

from typing import Annotated

import typer

from api.cli.options import CONNECT_S, LIMIT, TIMEOUT_S, AsJson, ConnectTimeout, KeyFile, Limit, Timeout, Url

COLUMNS = ("calls", "failed", "cached", "inputTokens", "outputTokens", "cost", "currency")
CAPS = ("scope", "store", "provider", "currency", "cap", "jobCap", "spent", "reserved")


def usage(
    by: Annotated[str, typer.Option(help="provider, stage, store, day or job.")] = "provider",
    store: Annotated[str | None, typer.Option(metavar="STORE", help="Of this store only.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="From this UTC day on, like 2026-03-01.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Up to this UTC day, inclusive.")] = None,
    caps: Annotated[bool, typer.Option("--caps", help="Show caps and what is left of them instead.")] = False,
    limit: Limit = LIMIT,
    as_json: AsJson = False,
    url: Url = None,
    key_file: KeyFile = None,
    timeout: Timeout = TIMEOUT_S,
    connect_timeout: ConnectTimeout = CONNECT_S,
) -> None:
    """Calls, tokens and money by provider, and by one thing more."""
    from api.cli.client import connect
    from api.cli.output import print_items

    with connect(url, key_file, timeout, connect_timeout) as client:
        if caps:
            print_items(client.items("/budgets", limit=limit), CAPS, as_json=as_json)
            return
        query = {"by": by, "store": store, "since": since, "until": until}
        items = client.items("/usage", query=query, limit=limit)
    part = () if by == "provider" else (by,)
    print_items(items, ("provider", *part, *COLUMNS), as_json=as_json)
