"""An Idempotency-Key on a request that makes no job but changes one (contract.md, Routes)."""

from uuid import UUID

from core.errors import IdempotencyConflict
from core.jobs.model import Idempotency
from core.store.database import Tx


def first_use(tx: Tx, tenant_id: UUID, key: Idempotency | None, job_id: UUID) -> bool:
    """Whether to go on: no key, or its first use, which is noted in this transaction. False: it was done before.

    Raises IdempotencyConflict when the key was used with another body."""
    if key is None:
        return True
    names = {"tenant": tenant_id, "route": key.route, "key": key.key}
    if tx.row("use_key", **names, hash=key.body_sha256, job=job_id) is not None:
        return True
    known = tx.row("used_key", **names)
    if known is not None and known["body_sha256"] != key.body_sha256:
        raise IdempotencyConflict("the Idempotency-Key was used with another body", job=str(known["job_id"]))
    return False
