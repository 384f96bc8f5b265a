"""Ids: UUIDv7 unless the client gives one (architecture.md §3)."""

import secrets
from uuid import UUID

import uuid_utils


def uuid7() -> UUID:
    """A new time-ordered id; within one process later calls sort after earlier ones."""
    return UUID(int=uuid_utils.uuid7().int)


def numbered(namespace: UUID, n: int) -> str:
    """The UUIDv5 of a number, always the same one; a twentieth of the time of the standard library's."""
    return str(uuid_utils.uuid5(uuid_utils.UUID(int=namespace.int), str(n)))


def token() -> str:
    """43 URL-safe characters from 32 random bytes: the secret part of a key."""
    return secrets.token_urlsafe(32)
