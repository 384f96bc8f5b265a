"""The lexical index: what writes leave to be done in the background (core/search/lexical)."""

from core.jobs.model import Done
from core.search.lexical.building import go_on, maintain
from workers.actors.work import Work


def maintain_index(work: Work) -> Done:
    """Builds, seals and merges what the store's index needs; `{"rebuild": true}` builds it anew in any case.

    Its steps commit on their own, each checked against the state of the index, so a job that lost its lease does no harm.
    """
    rebuild = work.body().get("rebuild") is True
    maintain(work.db, work.claim.tenant_id, work.store_id(), work.check, rebuild=rebuild, faults=work.faults)
    claim, store_id = work.claim, work.store_id()
    return Done({}, lambda tx: go_on(tx, claim.tenant_id, store_id), locked=store_id)
