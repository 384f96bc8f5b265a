"""What the routes of one API process share; made by `api.app.create_app`, opened and closed by its lifespan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from core.errors import ReadOnly

if TYPE_CHECKING:  # those modules read services from a request, so they import this one
    from api.answers import Waiter
    from api.auth import Authenticator
    from api.handover import Handover
    from api.metrics import Metrics
    from core.jobs.model import Kind
    from core.models.catalogue import Profiles
    from core.settings import Settings
    from core.store.database import Database
    from core.tenants.quotas import Backlogs
    from workers.submit import Submitter

DATABASE_CONNECTIONS = 12
"""Connections of an API process unless POOL_SIZE says otherwise: the accepting thread's, and those of plain routes."""
RESERVED_CONNECTIONS = 4
"""Of these, for accepting, its sender and the two that look up keys: slow listings must not starve them."""
OPERATOR_CONNECTIONS = 2


@dataclass(frozen=True)
class Services:
    """`operator_db` is None unless DATABASE_OPERATOR_URL is set: then there is no /admin."""

    settings: Settings
    db: Database
    operator_db: Database | None
    submitter: Submitter
    handover: Handover
    waiter: Waiter
    authenticator: Authenticator
    backlogs: Backlogs
    profiles: Profiles
    kinds: dict[str, Kind]
    metrics: Metrics

    @staticmethod
    def of(request: Request) -> Services:
        return cast("Services", request.app.state.services)

    def refuse_when_read_only(self) -> None:
        """Raises ReadOnly for whatever would write: writes, consolidations, imports and erasure (contract.md, Settings)."""
        if self.settings.readonly:
            raise ReadOnly("MUNIMENT_READONLY is set: nothing is written; reads go on")
