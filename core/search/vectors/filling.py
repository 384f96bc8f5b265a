"""Giving records their vectors, after the writes: one job a store, page by page in order of their numbers.

`filled` says how far a store is. A page's vectors and its new `filled` are committed together, under the job's lease and
only if nobody else has moved it: a job that is killed, doubled or late neither loses a record nor pairs a vector with
another text. Texts that have their vector already are not asked for again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from core.budget.model import Spender
from core.clock import monotonic
from core.errors import LeaseLost
from core.jobs.model import Claim
from core.jsontext import loads
from core.models.catalogue import Named
from core.models.embedders import Embedders
from core.models.embedding import Embedder, EmbeddingRefused, Vectors, text_of
from core.models.model import Call
from core.store.database import Database, Row

PAGE = 256


@dataclass
class Filled:
    """What a run did: records that got a new vector, and records whose text had one. `left`: it stopped before the end."""

    embedded: int = 0
    reused: int = 0
    left: bool = False


@dataclass(frozen=True, slots=True)
class _Page:
    """Records in order of their numbers; `canonical` only of those whose text has no vector yet."""

    rows: list[Row]
    first: int
    end: int
    total: int


def space_of(embedder: Embedder) -> UUID:
    """The first half of the profile's fingerprint: what rows of vectors are kept under."""
    return UUID(bytes=embedder.profile.space[:16])


def fill(db: Database, claim: Claim, embedders: Embedders, check: Callable[[], None], seconds: float) -> Filled:
    """Fills the store of a claimed job for about `seconds`. A store without an embedding has nothing to fill.

    Raises EmbeddingUnavailable, EmbeddingRefused, BadReply, LeaseLost, and what `check` raises between pages."""
    until = monotonic() + seconds
    call = Call(Spender(claim.tenant_id, claim.store_id, claim.job_id, "embed", "consolidation"))
    done = Filled()
    while True:
        check()
        with db.tenant(claim.tenant_id) as tx:
            named: Named | None = tx.value("embedding_of", tenant=claim.tenant_id, store=claim.store_id)
        if named is None:
            return done
        embedder = embedders.named(claim.tenant_id, named)
        page = _read(db, claim, space_of(embedder))
        if page.first == page.end:
            return done
        if monotonic() > until:
            done.left = True
            return done
        texts = {row["content"]: text_of(_record(row)) for row in page.rows if row["canonical"] is not None}
        vectors = embedder.embed(list(texts.values()), "document", call)
        if _store(db, claim, embedder, page, dict(zip(texts, vectors, strict=True))):
            done.embedded += sum(row["canonical"] is not None for row in page.rows)
            done.reused += sum(row["canonical"] is None for row in page.rows)


def _record(row: Row) -> dict[str, object]:
    record = loads(row["canonical"].encode())
    assert isinstance(record, dict)
    return record  # pyright: ignore[reportUnknownVariableType]


def _read(db: Database, claim: Claim, space: UUID) -> _Page:
    place = {"tenant": claim.tenant_id, "store": claim.store_id, "space": space}
    with db.tenant(claim.tenant_id) as tx:
        state = tx.row("vector_state", **place)
        if state is None:
            raise LeaseLost("the store was erased")
        rows = tx.rows("records_to_embed", **place, first=state["filled"], end=state["total"], limit=PAGE)
    end = rows[-1]["number"] + 1 if len(rows) == PAGE else state["total"]
    return _Page(rows, state["filled"], end, state["total"])


def _store(db: Database, claim: Claim, embedder: Embedder, page: _Page, vectors: dict[bytes, Vectors]) -> bool:
    """False: another job has moved the store on meanwhile."""
    place = {"tenant": claim.tenant_id, "store": claim.store_id, "space": space_of(embedder)}
    lengths = {len(vector) for vector in vectors.values()}
    lengths |= {row["dimensions"] for row in page.rows if row["dimensions"] is not None}
    with db.tenant(claim.tenant_id) as tx:
        held = tx.run(
            "set_progress", tenant=claim.tenant_id, job=claim.job_id, token=claim.lease_token, done=page.end,
            total=page.total, unit="records",
        )  # fmt: skip
        if not held:
            raise LeaseLost("the job was cancelled or taken over")
        if vectors:
            # A record that was erased meanwhile is not there any more, and its vector must not be either.
            alive = tx.rows(
                "lock_contents", tenant=claim.tenant_id, store=claim.store_id, first=page.first, end=page.end,
                contents=list(vectors),
            )  # fmt: skip
            kept: list[bytes] = [row["content"] for row in alive]
            blobs = [np.asarray(vectors[content], "<f4").tobytes() for content in kept]
            tx.run("insert_vectors", tenant=claim.tenant_id, space=place["space"], contents=kept, vectors=blobs)
        model = embedder.profile.model or embedder.profile.kind
        dimensions = tx.value("add_vector_set", **place, model=model, dimensions=min(lengths, default=None))
        if lengths - {dimensions}:
            raise EmbeddingRefused(
                f"the embedder's vectors have {max(lengths - {dimensions})} dimensions, those stored have {dimensions}: "
                "name the dimensions in the embedding profile, or give the changed model another name"
            )
        return tx.run("move_vector_set", **place, first=page.first, end=page.end) > 0
