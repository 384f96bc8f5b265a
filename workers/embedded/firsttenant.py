"""The tenant and the two keys that a new stack begins with."""

from pathlib import Path

from core.store.database import Database, Tx
from core.tenants import keys
from core.tenants.tenants import Tenant, create_tenant, list_tenants
from workers.embedded.datadir import DataDir, read_key, write_secret

NAME = "default"


def make_first_tenant(db: Database, data: DataDir) -> None:
    """Sees to it that both key files hold a key that works. `db` is the owner's."""
    if not _works(db, data.key_file):
        with db.system() as tx:
            tenant = first_tenant(tx) or create_tenant(tx, NAME)
            _, secret = keys.create_key(tx, tenant.id, "first key", keys.SCOPES)
        # After the commit: a key that no file holds is harmless, a file without its key is not.
        write_secret(data.key_file, secret)
    if not _works(db, data.operator_key_file):
        with db.system() as tx:
            _, secret = keys.create_operator_key(tx, "first operator key")
        write_secret(data.operator_key_file, secret)


def first_tenant(tx: Tx) -> Tenant | None:
    """None: an operator has erased it."""
    # It is the first tenant there was, so it stands on the first page.
    return next((tenant for tenant in list_tenants(tx) if tenant.name == NAME), None)


def _works(db: Database, file: Path) -> bool:
    secret = read_key(file)
    return secret is not None and keys.authenticate(db, keys.hash_key(secret)) is not None
