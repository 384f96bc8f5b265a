"""Who sends a request: its key and nothing else (contract.md, Routes).

The tenant comes from the key alone: no header, parameter or body field names one. A route states what it needs:
`principal: Annotated[Principal, require("read")]`, or `require_operator()` below /admin.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID

from fastapi import Depends
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.security.base import SecurityBase
from starlette.requests import Request

from api.parameters import refuse_unknown_parameters
from api.services import Services
from core.clock import monotonic
from core.errors import Forbidden, NotFound, Unauthenticated, Unavailable
from core.tenants.keys import OPERATOR, Principal, hash_key, well_formed
from core.tenants.names import is_store_name
from core.tenants.quotas import RequestRates

KEYS = 10_000
"""The most keys, good and bad each, that one process remembers."""
WAITING = 1_000
"""The most look-ups that may wait; beyond, 503."""
LOOKUP_SECONDS = 5.0

Lookup = Callable[[bytes], Principal | None]


class Authenticator:
    """Keys by their hash, looked up at most once every `cache_seconds`; for one event loop.

    Look-ups run in two threads of their own, so that no flood of keys takes the database's connections: one for keys
    that were good before, one for all others. A flood of bad keys delays only keys that this process has never seen.
    """

    def __init__(self, lookup: Lookup, cache_seconds: float) -> None:
        self._lookup = lookup
        self._seconds = cache_seconds
        self._good: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._bad: OrderedDict[bytes, float] = OrderedDict()
        self._flights: dict[bytes, asyncio.Future[Principal | None]] = {}
        self._known = ThreadPoolExecutor(1, "auth-known")
        self._unknown = ThreadPoolExecutor(1, "auth-unknown")
        self._rates = RequestRates()

    def close(self) -> None:
        self._known.shutdown(cancel_futures=True)
        self._unknown.shutdown(cancel_futures=True)

    async def principal(self, authorization: str | None) -> Principal:
        """Of an Authorization header. Raises Unauthenticated, QuotaExceeded (requests a second) or Unavailable."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not well_formed(secret):
            raise Unauthenticated("send the header `Authorization: Bearer mun_…`")
        key_hash = hash_key(secret)
        known = self._good.get(key_hash)
        if known is not None and monotonic() < known[1]:
            principal = known[0]
        else:
            principal = await self._look_up(key_hash, known is not None)
            if principal is None:
                raise Unauthenticated("the key is unknown, expired or revoked")
        self._rates.take(principal)
        return principal

    def forget(self, key_id: UUID) -> None:
        """Of a key that was revoked here: its next request is looked up again, and no look-up that began before counts."""
        for key_hash in [found for found, (principal, _) in self._good.items() if principal.key_id == key_id]:
            del self._good[key_hash]
        self._flights.clear()

    async def _look_up(self, key_hash: bytes, known: bool) -> Principal | None:
        if not known and monotonic() < self._bad.get(key_hash, 0.0):
            return None
        flight = self._flights.get(key_hash)
        if flight is None:
            if not known and len(self._flights) >= WAITING:
                raise Unavailable("too many keys are being looked up", retry_after=1)
            executor = self._known if known else self._unknown
            flight = asyncio.get_running_loop().run_in_executor(executor, self._lookup, key_hash)
            self._flights[key_hash] = flight
            flight.add_done_callback(partial(self._landed, key_hash))
        try:
            # Shielded: others may wait for the same look-up when this client goes away.
            return await asyncio.wait_for(asyncio.shield(flight), LOOKUP_SECONDS)
        except TimeoutError:
            raise Unavailable("the key could not be looked up in time", retry_after=1) from None

    def _landed(self, key_hash: bytes, flight: "asyncio.Future[Principal | None]") -> None:
        if self._flights.get(key_hash) is not flight:
            return  # a key was revoked meanwhile: it may be this one
        del self._flights[key_hash]
        if flight.cancelled() or flight.exception() is not None:
            return
        principal, until = flight.result(), monotonic() + self._seconds
        if principal is not None:
            self._good[key_hash] = (principal, until)
            self._good.move_to_end(key_hash)
            _shorten(self._good)
        else:
            self._good.pop(key_hash, None)
            self._bad[key_hash] = until
            self._bad.move_to_end(key_hash)
            _shorten(self._bad)


def _shorten(entries: "OrderedDict[bytes, Any]") -> None:
    while len(entries) > KEYS:
        entries.popitem(last=False)


class Require(SecurityBase):
    """A route's need for a key with `scope`, as a dependency; on the store in the route's path, when it has one.

    Tests read `scope` from every route, so that none can be added without one.
    """

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.model = BearerModel(description="A key, `mun_…`: a tenant's, or below /v1/admin an operator's.")
        self.scheme_name = "key"

    async def __call__(self, request: Request) -> Principal:
        sent = request.headers.getlist("authorization")
        if len(sent) > 1:
            raise Unauthenticated("the header Authorization is given more than once; send it once")
        principal = await Services.of(request).authenticator.principal(sent[0] if sent else None)
        store: str | None = request.path_params.get("store")
        self.check(principal, store)
        if store is not None and not is_store_name(store) and request.method != "PUT":
            raise NotFound("there is no such store")  # no name that cannot be one goes any further
        refuse_unknown_parameters(request)
        return principal

    def check(self, principal: Principal, store: str | None) -> None:
        """Raises Forbidden. The answer is the same whether the store exists or not."""
        if self.scope == OPERATOR:
            if not principal.is_operator:
                raise Forbidden("only an operator's key reaches this")
        elif principal.is_operator:
            raise Forbidden("an operator's key belongs to no tenant: use one of the tenant's keys")
        elif not principal.allows(self.scope):
            raise Forbidden(f"the key has not the scope `{self.scope}`")
        elif store is not None and not principal.sees(store):
            raise Forbidden("the key is not for this store")


def require(scope: str) -> Any:
    """`Annotated[Principal, require("write")]`: a tenant's key with that scope (core.tenants.keys.SCOPES)."""
    return Depends(Require(scope))


def require_operator() -> Any:
    """`Annotated[Principal, require_operator()]`: an operator's key."""
    return Depends(Require(OPERATOR))
