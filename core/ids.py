"""Ids: UUIDv7 unless the client gives one (architecture.md §3)."""

import secrets
from uuid import UUID

import uuid_utils


def uuid7() -> UUID:
    """A new time-ordered id; within one process later calls sort after earlier ones."""
    return UUID(int=uuid_utils.uuid7().int)


def token() -> str:
    """43 URL-safe characters from 32 random bytes: the secret part of a key."""
    return secrets.token_urlsafe(32)
