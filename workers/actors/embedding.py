"""Embedding: gives a store's new records their vectors. The store is read as it is when the job runs."""

from datetime import timedelta

from core.clock import now
from core.jobs.model import Deferred, Done, Outcome
from core.models.embedders import Embedders
from core.models.embedding import EmbeddingUnavailable
from core.search.vectors import storing
from core.search.vectors.filling import fill
from workers.actors.work import Work

SLICE_SECONDS = 5.0
"""After this long a job makes way for other stores, and for a stop: what is left is a new job's."""
AWAY_SECONDS = 30
"""Before an embedder that is away or busy is asked again, unless it names a time."""
OTHER_SECONDS = 1


class EmbedStore:
    """The actor. An embedder that is away costs no attempt: the job waits, deferred for `embed` (failure-cases.md H3)."""

    def __init__(self, embedders: Embedders, slice_seconds: float = SLICE_SECONDS) -> None:
        self._embedders = embedders
        self._slice = slice_seconds

    def __call__(self, work: Work) -> Outcome:
        """The result is `{embedded, reused}`: records that got a vector, and records whose text had one.

        Raises EmbeddingRefused, BadReply."""
        claim, store_id = work.claim, work.store_id()
        with work.db.tenant(claim.tenant_id) as tx:
            other = tx.value("another_embed_job", tenant=claim.tenant_id, store=store_id, job=claim.job_id)
        if other:
            return Deferred("embed", now() + timedelta(seconds=OTHER_SECONDS))
        try:
            filled = fill(work.db, claim, self._embedders, work.check, self._slice)
        except EmbeddingUnavailable as error:
            return Deferred("embed", now() + timedelta(seconds=error.retry_after or AWAY_SECONDS))
        result = {"embedded": filled.embedded, "reused": filled.reused}
        if not filled.left:
            return Done(result)
        return Done(result, lambda tx: _go_on(work, tx), locked=store_id)


def _go_on(work: Work, tx: storing.Tx) -> None:
    storing.request_job(tx, work.claim.tenant_id, work.store_id(), work.claim.queue)
