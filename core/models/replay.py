"""Recorded replies, for evaluations only: an arm of an ablation gets the base run's answers wherever it asks the same.

A hit costs nothing and asks nobody. A cache that cannot be read or written never fails a call (memory-agent.md §10.3).
"""

import hashlib
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from core.errors import InvalidRequest
from core.jsontext import dumps, loads
from core.models.profiles import ModelProfile
from core.store.database import Database

_log = logging.getLogger(__name__)

PAGE = 200


def key_of(profile: ModelProfile, body: bytes) -> bytes:
    """SHA-256 over the provider kind, the endpoint, the model and the encoded body."""
    digest = hashlib.sha256()
    for part in (profile.kind.encode(), profile.endpoint.encode(), profile.model.encode(), body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A reply as it came, and what it cost then, in nano-units."""

    reply: bytes
    cost: int


class Replay:
    """The caches of all tenants. Nothing here raises for a cache that is away."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def find(self, tenant_id: UUID, cache: str, key: bytes) -> Recorded | None:
        try:
            with self._db.tenant(tenant_id) as tx:
                row = tx.row("recorded_reply", tenant=tenant_id, cache=cache, key=key)
        except Exception as error:
            _log.warning("the model cache cannot be read; the model is asked: %s", error)
            return None
        return None if row is None else Recorded(bytes(row["reply"]), row["cost"])

    def keep(self, tenant_id: UUID, cache: str, key: bytes, provider: str, recorded: Recorded) -> None:
        """The last reply stored wins."""
        try:
            with self._db.tenant(tenant_id) as tx:
                tx.run(
                    "record_reply", tenant=tenant_id, cache=cache, key=key, provider=provider, reply=recorded.reply,
                    cost=recorded.cost,
                )  # fmt: skip
        except Exception as error:
            _log.warning("the model cache cannot be written: %s", error)


# Files --------------------------------------------------------------------------------------------------------------------


def exported(db: Database, tenant_id: UUID, cache: str) -> Iterator[str]:
    """The cache as JSON lines, by key: `{key, provider, reply, cost}`, key in hex, reply in base64."""
    after: bytes | None = None
    while True:
        with db.tenant(tenant_id) as tx:
            rows = tx.rows("recorded_replies", tenant=tenant_id, cache=cache, after=after, limit=PAGE)
        for row in rows:
            after = bytes(row["key"])
            reply = b64encode(bytes(row["reply"])).decode()
            yield dumps({"key": after.hex(), "provider": row["provider"], "reply": reply, "cost": row["cost"]})
        if len(rows) < PAGE:
            return


def cleared(db: Database, tenant_id: UUID, cache: str) -> int:
    """Deletes a cache, and says how many replies it held."""
    with db.tenant(tenant_id) as tx:
        return tx.run("forget_replies", tenant=tenant_id, cache=cache)


def imported(db: Database, tenant_id: UUID, cache: str, lines: Iterable[str]) -> int:
    """Adds what `exported` wrote, and says how many. Raises InvalidRequest naming the line."""
    count = 0
    with db.tenant(tenant_id) as tx:
        for number, line in enumerate(lines, 1):
            if line.strip():
                tx.run("record_reply", tenant=tenant_id, cache=cache, **_entry(line, number))
                count += 1
    return count


def _entry(line: str, number: int) -> dict[str, Any]:
    try:
        entry: object = loads(line.encode())
        fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        key, reply = bytes.fromhex(fields["key"]), b64decode(fields["reply"], validate=True)
        provider, cost = fields["provider"], fields["cost"]
        if len(key) != 32 or not isinstance(provider, str) or type(cost) is not int:
            raise ValueError
    except (InvalidRequest, KeyError, ValueError, TypeError):
        raise InvalidRequest.field(f"line {number}", "is no entry of an exported model cache") from None
    return {"key": key, "provider": provider, "reply": reply, "cost": cost}
