"""`search`: what a store finds for a question, by which routes, and why something is not found."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import AsJson, client_command

if TYPE_CHECKING:
    from api.cli.client import Client

WAIT_S = 45.0
TEXT_POINTS = 100
"""Of a record's text in a table."""


@client_command
def search(
    client: "Client",
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")],
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to search for.")],
    k: Annotated[int, typer.Option("-k", help="The most records.", min=1, max=100)] = 10,
    route: Annotated[
        list[str] | None, typer.Option(help="Search by this route only; may be given again.", metavar="ROUTE")
    ] = None,
    workspace: Annotated[str | None, typer.Option(help="See this workspace's records too.", metavar="ID")] = None,
    session: Annotated[str | None, typer.Option(help="See this session's records too.", metavar="ID")] = None,
    revision: Annotated[int | None, typer.Option(help="As the store was then.", min=0)] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each route's candidates, and why one is out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search a store: the best records for a question, each with what every route said of it."""
    import json

    from api.cli.client import quoted
    from api.cli.output import note, print_json

    scope = {name: value for name, value in (("workspaceId", workspace), ("sessionId", session)) if value is not None}
    given = {"routes": route or None, "scope": scope or None, "revision": revision, "explain": explain or None}
    body = {"query": question, "k": k, **{name: value for name, value in given.items() if value is not None}}
    done, found = client.run(f"/stores/{quoted(store)}/searches", json.dumps(body).encode(), wait=WAIT_S)
    if not done:
        note(f"Not found within {WAIT_S:.0f} s. Follow it with: muniment jobs watch {found['id']}")
        raise typer.Exit(1)
    if as_json:
        print_json(found)
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from api.cli.output import note, print_table

    rows = [
        (place, f"{item['score']:.4g}", _routes(item["routes"]), item["id"], _beginning(item["text"]))
        for place, item in enumerate(found["items"], 1)
    ]
    print_table(("#", "score", "routes", "id", "text"), rows, title=f"Revision {found['revision']}")
    for name in found["stats"].get("degraded", []):
        note(f"Without its full means: {name}")
    explained: dict[str, Any] | None = found.get("explain")
    if explained is None:
        return
    terms = ", ".join(f"{entry['term']} ({entry['records']})" for entry in explained["terms"]) or "none"
    print(
        f"\nSearched for: {explained['query']}\nTerms, with how many of {explained['records']} records hold them: {terms}"
    )
    print(f"Fused by: {explained['fusion']}")
    for name, route in explained["routes"].items():
        candidates = [
            (place, "" if "score" not in entry else f"{entry['score']:.4g}", entry["id"], entry["why"])
            for place, entry in enumerate(route["candidates"], 1)
        ]
        print()
        print_table(("#", "score", "id", "why"), candidates, title=f"{name}: found {route['found']}")


def _routes(routes: dict[str, dict[str, Any]]) -> str:
    """`lexical 1, vectors 4`: places from 1; without one where the route puts it beyond its first 200."""
    return (
        ", ".join(f"{name} {said['rank'] + 1}" if "rank" in said else name for name, said in routes.items()) or "beside"
    )


def _beginning(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_POINTS else f"{line[:TEXT_POINTS]}…"
