"""A tenant's money: its caps, and what it has used (contract.md, Routes)."""

from datetime import date
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.auth import require
from api.lists import LIMIT_DEFAULT, Cursor, Limit, decode, page, refused
from api.openapi import answers
from api.services import Services
from core.budget import caps
from core.budget.caps import Cap
from core.budget.usage import By, Used, usage, usage_of_jobs
from core.errors import InvalidRequest
from core.tenants.keys import Principal
from core.text import check_text

router = APIRouter(tags=["budgets"])

Reader = Annotated[Principal, require("read")]


@router.get("/budgets", summary="List caps and what is left of them", responses=answers(200, "Page"))
def get_budgets(
    request: Request, principal: Reader, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> dict[str, Any]:
    """The tenant's own caps and its stores', with what was spent and what calls under way have set aside. A provider that
    was never used and has no cap is left out. A key for some stores sees these stores' alone."""
    key = decode("budgets", cursor, (str, str, str))
    after = None if key is None else (str(key[0]), _uuid(key[1]), str(key[2]))
    with Services.of(request).db.tenant(principal.tenant) as tx:
        found = caps.spenders(tx, principal.tenant, principal.store_names(), after, limit + 1)
    return page(
        found, limit, route="budgets", key=lambda cap: [cap.scope, str(cap.scope_id), cap.provider], show=Cap.as_json
    )


@router.get("/usage", summary="What was used", responses=answers(200, "Page"))
def get_usage(
    request: Request,
    principal: Reader,
    by: Annotated[By, Query(description="What to add up by, besides the provider.")] = "provider",
    store: Annotated[str | None, Query(max_length=63, description="Of this store only.")] = None,
    job: Annotated[UUID | None, Query(description="Of this job only; with `by=job`.")] = None,
    since: Annotated[date | None, Query(description="From this UTC day on; not with `by=job`.")] = None,
    until: Annotated[date | None, Query(description="Up to this UTC day, inclusive; not with `by=job`.")] = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """Calls, tokens and money by provider and by stage, store, day or job. A call counts once it has ended, on the day it was
    begun; every attempt is a call. Jobs come newest first."""
    if store is not None:
        check_text(store, "store")
    stores = principal.store_names()
    if store is not None:
        stores = [store] if stores is None or store in stores else []
    if by == "job":
        for name, value in (("since", since), ("until", until)):
            if value is not None:
                raise InvalidRequest.field(name, "cannot be combined with by=job; leave it out")
    elif job is not None:
        raise InvalidRequest.field("job", "needs by=job")
    key = decode(f"usage {by}", cursor, (str, str))
    with Services.of(request).db.tenant(principal.tenant) as tx:
        if by == "job":
            before = None if key is None else (_uuid(key[0]), str(key[1]))
            found = usage_of_jobs(tx, principal.tenant, job=job, stores=stores, before=before, limit=limit + 1)
        else:
            after = None if key is None else (str(key[0]), str(key[1]))
            found = usage(
                tx, principal.tenant, by, stores=stores, first=since, last=until, after=after, limit=limit + 1
            )
    shown = page(found, limit, route=f"usage {by}", key=lambda used: [used.part, used.provider], show=Used.as_json)
    return JSONResponse(shown)


def _uuid(text: object) -> UUID:
    try:
        return UUID(str(text))
    except ValueError:
        raise refused() from None
