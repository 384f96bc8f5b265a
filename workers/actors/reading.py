"""Reads: a View is the result; nothing is written."""

from core.jobs.model import Done
from core.reading.service import read
from workers.actors.work import Work


def read_memory(work: Work) -> Done:
    view = read(work.db, work.claim.tenant_id, work.store_id(), work.body(), work.check)
    return Done(view)
