"""Reads and searches: the result is what was found; nothing is written."""

from core.jobs.model import Done
from core.reading.service import read
from core.search.answering import answer
from core.search.service import Engines
from workers.actors.work import Work


class ReadMemory:
    """The actor of `reads`: a View."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def __call__(self, work: Work) -> Done:
        claim = work.claim
        return Done(read(work.db, self._engines, claim.tenant_id, work.store_id(), work.body(), work.check))


class SearchStore:
    """The actor of `searches`: ranked records."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    def __call__(self, work: Work) -> Done:
        claim = work.claim
        return Done(answer(work.db, self._engines, claim.tenant_id, work.store_id(), work.body(), work.check))
