"""What a write and an erasure do about vectors and entities, in their own transactions."""

from uuid import UUID

from core.ids import uuid7
from core.store.database import Tx

JOB_ATTEMPTS = 5
JOB_KEEP_SECONDS = 3_600


def request_job(tx: Tx, tenant_id: UUID, store_id: UUID, queue: str) -> UUID | None:
    """Asks for a job of kind `embed` that fills the store, unless one waits that has read nothing yet; its id.

    In the transaction of what made it necessary, under the store's row lock: a waiting job cannot be claimed before that
    transaction ends, and so sees what it wrote."""
    return tx.value(
        "request_embed_job", tenant=tenant_id, store=store_id, job=uuid7(), queue=queue, keep=JOB_KEEP_SECONDS,
        attempts=JOB_ATTEMPTS,
    )  # fmt: skip


def erase_documents(tx: Tx, tenant_id: UUID, store_id: UUID, documents: list[str] | None) -> None:
    """Takes away the vectors and entities that only these documents' blocks have (None: all of the store's).

    Before the blocks are deleted, under the store's row lock. They are locked first, so that a job that is storing their
    vectors either is done by then or finds them gone."""
    place = {"tenant": tenant_id, "store": store_id, "documents": documents}
    tx.rows("lock_records", **place)
    tx.run("erase_vectors", **place)
    tx.run("erase_entities", **place)


def erase_store(tx: Tx, tenant_id: UUID, store_id: UUID) -> None:
    erase_documents(tx, tenant_id, store_id, None)
    tx.run("erase_vector_sets", tenant=tenant_id, store=store_id)
