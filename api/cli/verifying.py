"""`export` and `verify`: a store's records as a file, and the proof of a View by it, without any service."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.options import client_command

if TYPE_CHECKING:
    from api.cli.client import Client


@client_command
def export(
    client: "Client",
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store's name.")],
    revision: Annotated[int | None, typer.Option(help="As the store was then; left out, now.", min=0)] = None,
) -> None:
    """Print all records of a store, a line each: exactly the bytes that their hashes are of."""
    from api.cli.client import quoted

    for part in client.stream(f"/stores/{quoted(store)}/export", {"revision": revision}):
        sys.stdout.buffer.write(part)


def verify(
    view: Annotated[Path, typer.Argument(metavar="VIEW", help="A View, as `read` prints it.", exists=True)],
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="What `export` printed.", exists=True)],
) -> None:
    """Prove a View by an export, offline: the hashes, the literal texts, and their places in the documents."""
    from api.cli.output import note
    from core.errors import InvalidRequest
    from core.jsontext import loads
    from core.reading.verifying import verify as proofs

    shown = loads(view.read_bytes(), str(view))
    if not isinstance(shown, dict):
        raise InvalidRequest(f"{view} is no View")
    proved = wrong = 0
    with export.open("rb") as lines:
        for own_id, faults in proofs(shown, lines):  # pyright: ignore[reportUnknownArgumentType]
            proved, wrong = proved + (not faults), wrong + bool(faults)
            for fault in faults:
                note(f"{own_id}: {fault}")
    print(f"{proved} proved, {wrong} not")
    if wrong:
        raise typer.Exit(1)
