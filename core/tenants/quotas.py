"""Quotas of a tenant (contract.md, Routes): queued jobs and bytes, stored bytes, requests a second.

Each process counts for itself: it adds what it accepts to the numbers that it last asked the database for. What others
accepted is as old as those: REFRESH_SECONDS, or REFRESH_TIMES as long as counting took, at most REFRESH_LONGEST_SECONDS, and
the next counting on top. In that time each process accepts at most what was free when it asked, so several together may
exceed a limit by that, once for each process but one. Requests a second are per process: so many processes, so many times
the limit.

Accepting itself never counts rows. Asking does, in time proportional to the tenant's backlog (50 ms for 100,000 jobs):
one request of a tenant at a time waits for it, and where it takes long it is asked less often, so that counting never takes
more than a twentieth of the time, unless it takes longer than REFRESH_LONGEST_SECONDS / REFRESH_TIMES.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil
from uuid import UUID

from core.clock import monotonic
from core.errors import QuotaExceeded
from core.store.database import Database
from core.tenants.keys import Principal
from core.tenants.tenants import Limits

REFRESH_SECONDS = 1.0
REFRESH_TIMES = 20
"""Numbers serve so many times as long as it took to get them, if that is more; at most REFRESH_LONGEST_SECONDS."""
REFRESH_LONGEST_SECONDS = 30.0
RETRY_SECONDS = 5
TENANTS = 10_000
"""The most tenants that one process remembers."""


@dataclass(slots=True)
class Backlog:
    jobs: int
    bytes: int
    stored: int
    due_at: float


class Backlogs:
    """What each tenant has queued and stored; for any thread."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._known: OrderedDict[UUID, Backlog] = OrderedDict()

    def fresh(self, principal: Principal) -> bool:
        """Whether `check` will answer from memory; if not, it asks the database: not on an event loop."""
        known = self._known.get(principal.tenant)
        return known is not None and monotonic() < known.due_at

    def check(self, principal: Principal, add_bytes: int, jobs: int = 1) -> None:
        """Counts the jobs in, or raises QuotaExceeded with Retry-After. Raises Unavailable like any statement."""
        backlog = self._unless_due(principal.tenant) or self._refresh(principal.tenant)
        limits = principal.limits
        assert limits is not None
        with self._lock:
            problem = _beyond(limits, backlog, add_bytes, jobs)
            if problem is None:
                backlog.jobs += jobs
                backlog.bytes += add_bytes
        if problem is not None:
            raise QuotaExceeded(problem, retry_after=RETRY_SECONDS)

    def _unless_due(self, tenant_id: UUID) -> Backlog | None:
        # Who finds the numbers old takes the refresh upon itself; meanwhile the others go by the old ones.
        with self._lock:
            known = self._known.get(tenant_id)
            if known is None or monotonic() < known.due_at:
                return known
            known.due_at = monotonic() + RETRY_SECONDS
            return None

    def _refresh(self, tenant_id: UUID) -> Backlog:
        began = monotonic()
        with self._db.tenant(tenant_id) as tx:
            row = tx.row("tenant_backlog", tenant=tenant_id)
        assert row is not None
        serves = min(max(REFRESH_SECONDS, REFRESH_TIMES * (monotonic() - began)), REFRESH_LONGEST_SECONDS)
        backlog = Backlog(row["jobs"], row["bytes"], row["stored"], monotonic() + serves)
        with self._lock:
            self._known[tenant_id] = backlog
            self._known.move_to_end(tenant_id)
            while len(self._known) > TENANTS:
                self._known.popitem(last=False)
        return backlog


def _beyond(limits: Limits, backlog: Backlog, add_bytes: int, jobs: int) -> str | None:
    if backlog.jobs + jobs > limits.max_queued_jobs:
        return f"{backlog.jobs} jobs are queued, and {limits.max_queued_jobs} is this tenant's limit"
    if backlog.bytes + add_bytes > limits.max_queued_bytes:
        return f"{backlog.bytes} bytes are queued, and {limits.max_queued_bytes} is this tenant's limit"
    if limits.max_stored_bytes is not None and backlog.stored + add_bytes > limits.max_stored_bytes:
        return f"{backlog.stored} bytes are stored, and {limits.max_stored_bytes} is this tenant's limit"
    return None


class RequestRates:
    """A token bucket a tenant: `max_requests_per_second` tokens, refilled at that rate. For one thread."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[UUID, tuple[float, float]] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """Counts one request, or raises QuotaExceeded with Retry-After."""
        if principal.limits is None or principal.limits.max_requests_per_second is None:
            return
        rate = principal.limits.max_requests_per_second
        moment = monotonic()
        tokens, since = self._buckets.pop(principal.tenant, (float(rate), moment))
        tokens = min(float(rate), tokens + (moment - since) * rate)
        allowed = tokens >= 1
        self._buckets[principal.tenant] = (tokens - 1 if allowed else tokens, moment)
        while len(self._buckets) > TENANTS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = ceil((1 - tokens) / rate)
            raise QuotaExceeded(f"{rate} requests a second is this tenant's limit", retry_after=max(1, wait))
