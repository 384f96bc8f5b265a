"""The profiles of the rehearsal models, granted to the first tenant of an embedded stack."""

from uuid import UUID

from core.errors import NotFound
from core.models.catalogue import ALL
from core.models.granting import get_profile, put_profile
from core.store.database import Tx
from workers.embedded.rehearsal import EMBEDDER, JUDGE, WRITER


def grant(tx: Tx, tenant_id: UUID, url: str) -> None:
    """Makes the three profiles, or leads them to `url`, and grants them; who had a grant keeps it. `tx` is the system's."""
    for name, fields in (
        (JUDGE, {"kind": "systemone", "baseURL": f"{url}/v1"}),
        (WRITER, {"kind": "local", "baseURL": f"{url}/v1"}),
        (EMBEDDER, {"kind": "openai", "url": url}),
    ):
        put_profile(tx, name, {**fields, "model": name}, _grants(tx, name, tenant_id), filed=(), key_envs=())


def _grants(tx: Tx, name: str, tenant_id: UUID) -> str | list[str]:
    try:
        tenants = get_profile(tx, name).tenants
    except NotFound:
        tenants = ()
    return ALL if tenants is None else [str(tenant) for tenant in {tenant_id, *tenants}]
