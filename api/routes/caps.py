"""/admin/budgets: the operator's caps, of providers and of tenants."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import JSONResponse, Response

from api.openapi import request_body
from api.operators import OperatorDb, json_body
from core.budget import caps
from core.budget.caps import Cap
from core.budget.model import CURRENCIES, parse_caps
from core.errors import InvalidRequest
from core.store.database import Database
from core.tenants import tenants

router = APIRouter()

LARGEST_LIST = 1_000
_AMOUNT: dict[str, Any] = {"type": ["number", "string", "null"]}
_Amounts = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "properties": dict.fromkeys(CURRENCIES, _AMOUNT), "additionalProperties": False}),
]


class NewCaps(BaseModel):
    """Caps to set, in whole units of the provider's currency; those that are left out stay as they are."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True,
        json_schema_extra={"examples": [
            {"caps": {"jev": 25, "deepseek": "60.50"}},
            {"tenant": "01990c2e-6e3a-7d51-9f3c-0c4f5a1b2c3d", "caps": {"jev": 1}, "jobCaps": {"jev": "0.10"}},
        ]},
    )  # fmt: skip

    tenant: Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})] | None = None
    caps: _Amounts = Field(
        default={}, description="Of a provider, or of the tenant with it; null takes a tenant's away."
    )
    jobCaps: _Amounts = Field(default={}, description="Of each single job; null takes it away.")


@router.get("/budgets", summary="Show caps and spending")
def get_caps(db: OperatorDb, tenant: UUID | None = None) -> dict[str, Any]:
    """Of every provider over all tenants; with `tenant`, of that tenant and its stores (the first 1,000)."""
    return _shown(db, tenant)


@router.put("/budgets", summary="Set caps", openapi_extra=request_body(NewCaps))
def put_caps(db: OperatorDb, body: Annotated[NewCaps, json_body(NewCaps)]) -> Response:
    """Written over the stored ones; what was spent is kept. Jobs that wait for money go on. MUNIMENT_BUDGETS, where it is
    set, is written over this again by every process that starts with it."""
    if not body.caps and not body.jobCaps:
        raise InvalidRequest.field("caps", "name at least one cap to set, here or in jobCaps")
    job_caps = _amounts("jobCaps", body.jobCaps)
    given = _amounts("caps", body.caps)
    tenant = None
    with db.system() as tx:
        if body.tenant is not None:
            try:
                tenant = UUID(body.tenant)
            except ValueError as error:
                raise InvalidRequest.field("tenant", str(error)) from None
            tenants.get_tenant(tx, tenant)
            caps.set_tenant_caps(tx, tenant, given, job_caps)
        else:
            for provider, cap in given.items():
                if cap is None:
                    raise InvalidRequest.field(f"caps.{provider}", "a provider always has a cap; 0 stops all spending")
            known = {provider: cap for provider, cap in given.items() if cap is not None}
            caps.set_provider_caps(tx, known, job_caps)
    return JSONResponse(_shown(db, tenant))


def _shown(db: Database, tenant: UUID | None) -> dict[str, Any]:
    with db.system() as tx:
        if tenant is None:
            found = caps.accounts(tx)
        else:
            tenants.get_tenant(tx, tenant)
            found = caps.spenders(tx, tenant, None, None, LARGEST_LIST)
    return {"items": [Cap.as_json(cap) for cap in found]}


def _amounts(name: str, given: dict[str, Any]) -> dict[str, int | None]:
    amounts: dict[str, int | None] = {}
    for provider, amount in given.items():
        try:
            amounts[provider] = parse_caps({provider: 0 if amount is None else amount})[provider]
        except ValueError as error:
            raise InvalidRequest.field(f"{name}.{provider}", str(error)) from None
        if amount is None:
            amounts[provider] = None
    return amounts
