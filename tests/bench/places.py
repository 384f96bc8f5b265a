"""A store that is searched in this process, with the caches a worker has by default."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from core.settings import Settings
from core.store.database import Database
from tests.bench.front import Front

INDEX_BYTES = int(Settings.model_fields["index_cache_bytes"].default)
VECTOR_BYTES = int(Settings.model_fields["vector_cache_bytes"].default)


@dataclass(frozen=True, slots=True)
class Place:
    door: Front
    db: Database
    store: str
    store_id: UUID
    questions: Sequence[str]
