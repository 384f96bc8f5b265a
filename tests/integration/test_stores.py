"""Stores and their configuration, on a real Postgres."""

import threading
from uuid import UUID

import pytest

from core.errors import InvalidRequest, NotFound, PreconditionFailed
from core.ids import uuid7
from core.tenants import stores, tenants
from core.tenants.config import parse_config
from core.tenants.stores import Store
from tests.conftest import TestDatabase

SMALL = parse_config({"view": {"maxItems": 4}})


def put(database: TestDatabase, tenant: UUID, name: str, config=None, **more) -> tuple[Store, bool]:
    with database.app.tenant(tenant) as tx:
        return stores.put_store(tx, tenant, name, config, **more)


def test_a_store_is_made_once_and_then_replaced(database: TestDatabase, tenant: UUID) -> None:
    made, created = put(database, tenant, "notes")
    assert created
    replaced, created = put(database, tenant, "notes", SMALL)
    assert not created
    assert replaced.id == made.id
    assert replaced.config["view"] == {"maxItems": 4, "order": ""}
    assert replaced.policy_hash != made.policy_hash
    assert replaced.etag != made.etag
    assert replaced.created_at == made.created_at
    with database.app.tenant(tenant) as tx:
        assert stores.get_store(tx, tenant, "notes") == replaced
        assert stores.store_id_of(tx, tenant, "notes") == made.id


def test_the_same_configuration_again_changes_nothing(database: TestDatabase, tenant: UUID) -> None:
    first, _ = put(database, tenant, "notes", SMALL)
    again, _ = put(database, tenant, "notes", SMALL)
    assert again == first


def test_if_match_refuses_what_has_changed(database: TestDatabase, tenant: UUID) -> None:
    made, _ = put(database, tenant, "notes")
    with pytest.raises(PreconditionFailed, match="no such store"):
        put(database, tenant, "other", SMALL, if_match=["*"])
    replaced, _ = put(database, tenant, "notes", SMALL, if_match=['"x"', made.etag])
    with pytest.raises(PreconditionFailed):
        put(database, tenant, "notes", None, if_match=[made.etag])
    with pytest.raises(PreconditionFailed):
        put(database, tenant, "notes", None, if_match=[f"W/{replaced.etag}"])
    with database.app.tenant(tenant) as tx:
        assert stores.get_store(tx, tenant, "notes") == replaced
        assert [store.name for store in stores.list_stores(tx, tenant)] == ["journal", "notes"]
    assert put(database, tenant, "notes", None, if_match=["*"])[0].version == replaced.version + 1


def test_one_of_two_simultaneous_replacements_is_refused(database: TestDatabase, tenant: UUID) -> None:
    made, _ = put(database, tenant, "notes")
    start = threading.Barrier(2, timeout=10)
    outcomes: list[str] = []

    def replace(items: int) -> None:
        start.wait()
        try:
            put(database, tenant, "notes", parse_config({"view": {"maxItems": items}}), if_match=[made.etag])
            outcomes.append("replaced")
        except PreconditionFailed:
            outcomes.append("refused")

    threads = [threading.Thread(target=replace, args=(items,)) for items in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(outcomes) == ["refused", "replaced"]


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a" * 64, "a/b", "ä", "a\n", "a\0"])
def test_a_name_that_is_none_is_refused(database: TestDatabase, tenant: UUID, name: str) -> None:
    with pytest.raises(InvalidRequest, match="store"):
        put(database, tenant, name)
    with database.app.tenant(tenant) as tx, pytest.raises(NotFound):
        stores.get_store(tx, tenant, name)


def test_the_longest_name_is_accepted(database: TestDatabase, tenant: UUID) -> None:
    assert put(database, tenant, "0" + "a-_" * 20 + "zz")[1]


def test_a_list_goes_by_name_and_can_be_narrowed(database: TestDatabase, tenant: UUID) -> None:
    for name in ("b", "a", "c"):
        put(database, tenant, name)
    with database.app.tenant(tenant) as tx:
        assert [store.name for store in stores.list_stores(tx, tenant, limit=2)] == ["a", "b"]
        assert [store.name for store in stores.list_stores(tx, tenant, after="b")] == ["c", "journal"]
        assert [store.name for store in stores.list_stores(tx, tenant, names=["c", "z"])] == ["c"]
        assert stores.list_stores(tx, tenant, names=[]) == []


def test_another_tenants_stores_do_not_exist(database: TestDatabase, tenant: UUID) -> None:
    with database.relay.system() as tx:
        other = tenants.create_tenant(tx, f"other-{uuid7()}").id
    theirs, _ = put(database, other, "notes")
    with database.app.tenant(tenant) as tx:
        for act in (stores.get_store, stores.store_id_of):
            with pytest.raises(NotFound):
                act(tx, tenant, "notes")
            with pytest.raises(NotFound):
                act(tx, other, "notes")  # the second wall: the right id in a foreign transaction
        assert [store.name for store in stores.list_stores(tx, other)] == []
    mine, created = put(database, tenant, "notes", SMALL)
    assert created
    assert mine.id != theirs.id
    with database.app.tenant(other) as tx:
        assert stores.get_store(tx, other, "notes") == theirs
