"""`write` and `read`: JSON in, JSON out."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.options import STORE, StoreName, client_command

if TYPE_CHECKING:
    from api.cli.client import Client

WRITE_WAIT_S = 60.0
READ_WAIT_S = 45.0

Wait = Annotated[float, typer.Option(help="Seconds to wait for the result; 0: only hand it over.", min=0)]
IdempotencyKey = Annotated[
    str | None, typer.Option(help="Makes a repetition of this very command harmless.", metavar="KEY")
]


@client_command
def write(
    client: "Client",
    store: StoreName = STORE,
    wait: Wait = WRITE_WAIT_S,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Write what is on standard input: a text, a conversation (`messages`) or a batch of both (`items`)."""
    body, fields = _input()
    route = "conversations" if "messages" in fields else "memories:batch" if "items" in fields else "memories"
    _run(client, store, route, body, wait, idempotency_key)


@client_command
def read(
    client: "Client",
    store: StoreName = STORE,
    wait: Wait = READ_WAIT_S,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Ask the question on standard input, `{"question": "…"}`; print the evidence."""
    body, _ = _input()
    _run(client, store, "reads", body, wait, idempotency_key)


def _input() -> tuple[bytes, set[str]]:
    """Standard input as it is, and the names of its fields. Raises InvalidRequest when it is no JSON object."""
    from api.cli.output import note
    from core.errors import InvalidRequest
    from core.jsontext import loads

    if sys.stdin.isatty():
        note("Reading JSON from standard input; end it with Ctrl-D.")
    body = sys.stdin.buffer.read()
    value = loads(body, "standard input")
    if not isinstance(value, dict):
        raise InvalidRequest("standard input is not a JSON object")
    return body, {str(name) for name in value}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _run(client: "Client", store: str, route: str, body: bytes, wait: float, key: str | None) -> None:
    from api.cli.client import quoted
    from api.cli.output import note, print_json

    done, outcome = client.run(f"/stores/{quoted(store)}/{route}", body, wait=wait, key=key)
    print_json(outcome)
    if not done:
        note(f"Accepted; it will be done. Follow it with: muniment jobs watch {outcome['id']}")
