"""What the product's searches are measured with in this process, and vectors that cost no model's time.

The built-in model gives about 150 texts of 600 characters a second: 100,000 would take ten minutes. So a few hundred are
embedded and all others' vectors are mixed from these, close to real ones in how they lie. They are stored by content before
the store names an embedding; its job then finds that every text has its vector.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from core.models import builtin
from core.models.catalogue import Named
from core.models.embedders import Embedders
from core.models.embedding import BUILTIN, Embedder, Purpose
from core.models.model import Call
from core.store.database import Database
from tests.bench.front import Front

Vectors = NDArray[np.float32]
PAGE = 1_000
SPACE = UUID(bytes=BUILTIN.space[:16])


class Prepared(Embedders):
    """The built-in profile with a table in place of the model: a search's embedding takes no time."""

    def __init__(self, vectors: Mapping[str, Vectors]) -> None:
        self._table = Embedder(BUILTIN, _Table(vectors))

    def named(self, tenant_id: UUID, named: Named) -> Embedder:
        del tenant_id, named
        return self._table


class _Table:
    def __init__(self, vectors: Mapping[str, Vectors]) -> None:
        self._vectors = vectors

    def embed(self, texts: Sequence[str], purpose: Purpose, call: Call) -> Vectors:
        del purpose, call
        return np.stack([self._vectors[text] for text in texts])


def embedded(texts: Sequence[str]) -> Vectors:
    """By the built-in model."""
    model = builtin.Builtin()
    return normal(np.concatenate([model.embed(texts[start : start + 64]) for start in range(0, len(texts), 64)]))


def mixed(base: Vectors, count: int, seed: int = 0) -> Vectors:
    """Each between two of `base`, nearer to the first, with as much noise again as to the second."""
    chance = np.random.default_rng(seed)
    one, other = chance.integers(len(base), size=(2, count))
    noise = normal(chance.standard_normal((count, base.shape[1]), np.float32))
    return normal(base[one] + np.float32(0.5) * (base[other] + noise))


def clustered(clusters: int, count: int, seed: int) -> Vectors:
    """Around common centres, the same for every seed."""
    centres = normal(np.random.default_rng(0).standard_normal((clusters, builtin.DIMENSIONS), np.float32))
    chance = np.random.default_rng(seed)
    noise = normal(chance.standard_normal((count, builtin.DIMENSIONS), np.float32))
    return normal(centres[chance.integers(clusters, size=count)] + np.float32(0.6) * noise)


def normal(vectors: NDArray[Any]) -> Vectors:
    """Rows of length 1."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32, copy=False)


def give(door: Front, db: Database, store: str, vectors: Vectors) -> None:
    """Record number n of the store gets vector n. Afterwards the store may name the built-in embedding."""
    with door.stage.admin() as admin:
        rows = admin.execute(
            b"select content from records where tenant_id = %s and store_id = %s order by number",
            (door.tenant, door.store_id(store)),
        ).fetchall()
    if len(rows) != len(vectors):
        raise RuntimeError(f"{store} has {len(rows)} records, not {len(vectors)}")
    for start in range(0, len(rows), PAGE):
        contents = [row[0] for row in rows[start : start + PAGE]]
        blobs = [vector.astype("<f4").tobytes() for vector in vectors[start : start + PAGE]]
        with db.tenant(door.tenant) as tx:
            tx.run("insert_vectors", tenant=door.tenant, space=SPACE, contents=contents, vectors=blobs)


@contextmanager
def database(door: Front) -> Iterator[Database]:
    """As a worker reaches Postgres, with one thread of BLAS as a worker has."""
    with threadpool_limits(limits=1, user_api="blas"), Database(door.stage.dsn("app"), name="bench", size=2) as db:
        yield db
