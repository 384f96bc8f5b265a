"""An archive's way through the API: announced, uploaded in pieces, run, followed. Nothing here prints."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

from api.cli.client import Client, quoted
from core.clock import monotonic
from core.errors import JobFailed, MunimentError, Unavailable, WrongState, from_json
from core.ids import token

PIECE_BYTES = 4 * 1024 * 1024
PAUSES_S = (0.5, 1, 2, 4, 8, 16)
"""After a lost connection; an upload that has not gone on after the last one is given up."""
LOOK_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
ENDED = frozenset({"succeeded", "failed", "cancelled", "paused"})


def create(client: Client, store: str, file: Path) -> str:
    """Announces an upload; its id."""
    body = json.dumps({"filename": file.name, "size": file.stat().st_size}).encode()
    headers = {"Idempotency-Key": f"cli-{token()}"}
    return client.send("POST", f"/stores/{quoted(store)}/imports", body=body, headers=headers).json()["id"]


def upload(client: Client, import_id: str, file: Path) -> Iterator[int]:
    """Sends what the server has not got yet; yields how many bytes it has, whenever that grows.

    Goes on after a lost connection. Raises WrongState for another file than was announced, Unavailable when it gives up."""
    path = f"/imports/{quoted(import_id)}"
    announced: dict[str, Any] = client.get(path)
    if announced["size"] != file.stat().st_size:
        raise WrongState(f"{file} has {file.stat().st_size} bytes, and {announced['size']} were announced")
    failures = 0
    with file.open("rb") as stream:
        offset = _received(client, path)
        yield offset
        while offset < announced["size"]:
            stream.seek(offset)
            try:
                _send(client, path, offset, stream.read(PIECE_BYTES))
            except Unavailable:
                if failures == len(PAUSES_S):
                    raise
                sleep(PAUSES_S[failures])
                failures += 1
            else:
                failures = 0
            offset = _received(client, path)
            yield offset


def _send(client: Client, path: str, offset: int, piece: bytes) -> None:
    headers = {"Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
    client.send("PATCH", path, body=piece, headers=headers)


def _received(client: Client, path: str) -> int:
    return int(client.send("HEAD", path).headers["Upload-Offset"])


def start(client: Client, import_id: str) -> None:
    """Begins the run, once: an import that has begun already is left to go on."""
    path = f"/imports/{quoted(import_id)}"
    if client.get(path)["state"] in {"uploading", "ready"}:
        client.send("POST", f"{path}/start", headers={"Idempotency-Key": f"cli-{import_id}-start"})


def follow(client: Client, import_id: str, seconds: float) -> Iterator[dict[str, Any]]:
    """The import whenever it is looked at, until it has ended or `seconds` have passed; at least once."""
    deadline = monotonic() + seconds
    looks = 0
    while True:
        found = client.get(f"/imports/{quoted(import_id)}")
        yield found
        left = deadline - monotonic()
        if found["state"] in ENDED or left <= 0:
            return
        sleep(min(LOOK_S[min(looks, len(LOOK_S) - 1)], left))
        looks += 1


def ended_badly(found: dict[str, Any]) -> MunimentError | None:
    """The problem of an import that failed or was cancelled; None while it goes on and when all is well."""
    if found["state"] not in {"failed", "cancelled"}:
        return None
    problem = found.get("error")
    return from_json(problem) if problem else JobFailed(f"the import {found['id']} is {found['state']}")
