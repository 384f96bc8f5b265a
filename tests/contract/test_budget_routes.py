"""Caps and usage through HTTP: a tenant's own, and the operator's (contract.md, Routes)."""

from collections.abc import Iterator
from uuid import UUID

import httpx
import pytest

from core.budget.lease import ProcessLease
from core.budget.ledger import Ledger
from core.budget.model import CallClass, Estimate, Spender
from core.errors import BudgetSpent
from core.ids import uuid7
from core.settings import Settings
from tests.contract.server import Api
from tests.rows import execute, insert_jobs

CENT = Estimate(reserve=10_000_000, input=1_000)


class Payer:
    """Spends a tenant's money as a worker does."""

    def __init__(self, api: Api, tenant: UUID) -> None:
        self.api = api
        self.tenant = tenant
        lease = ProcessLease(api.database.app, Settings())
        lease.renew()
        self.ledger = Ledger(api.database.app, lease, Settings())

    def store(self, name: str) -> UUID:
        return execute(
            self.api.database.admin,
            "select store_id from stores where tenant_id = %s and name = %s",
            self.tenant,
            name,
        )[0][0]

    def pay(
        self,
        cost: int,
        *,
        provider: str = "jev",
        store: str | None = "journal",
        stage: str = "judge",
        job: UUID | None = None,
        call_class: CallClass = "read",
    ) -> None:
        spender = Spender(self.tenant, self.store(store) if store else None, job, stage, call_class)
        self.ledger.settle(self.ledger.reserve(provider, CENT, spender), cost, cost // 42, 5)


@pytest.fixture
def payer(api: Api, tenant: UUID) -> Payer:
    return Payer(api, tenant)


@pytest.fixture
def operator(api: Api) -> Iterator[httpx.Client]:
    with api.client(api.operator_key()) as client:
        client.base_url = f"{api.url}/v1/admin"
        yield client


def items(client: httpx.Client, path: str, **query: str | int) -> list[dict[str, object]]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_a_tenant_sees_its_own_caps_and_spending_and_no_others(
    api: Api, client: httpx.Client, operator: httpx.Client, tenant: UUID, payer: Payer
) -> None:
    assert items(client, "/v1/budgets") == []
    payer.pay(4_200_000)
    Payer(api, api.tenant()).pay(7_000_000)
    assert (
        operator.put("/budgets", json={"tenant": str(tenant), "caps": {"jev": 2, "openai": "0.5"}}).status_code == 200
    )
    assert client.put("/v1/stores/journal", json={"budgets": {"jev": 1}}).status_code == 200
    store = str(payer.store("journal"))
    assert items(client, "/v1/budgets") == [
        {
            "scope": "store", "store": "journal", "storeId": store, "provider": "jev", "currency": "USD", "cap": "1",
            "spent": "0.0042", "reserved": "0",
        },
        {"scope": "tenant", "provider": "jev", "currency": "USD", "cap": "2", "spent": "0.0042", "reserved": "0"},
        {"scope": "tenant", "provider": "openai", "currency": "USD", "cap": "0.5", "spent": "0", "reserved": "0"},
    ]  # fmt: skip
    page = client.get("/v1/budgets", params={"limit": 2}).json()
    rest = client.get("/v1/budgets", params={"limit": 2, "cursor": page["nextCursor"]}).json()
    assert page["items"] + rest["items"] == items(client, "/v1/budgets")


def test_usage_adds_up_by_provider_stage_store_day_and_job(client: httpx.Client, payer: Payer, api: Api) -> None:
    api.store(payer.tenant, "other")
    first, second = uuid7(), uuid7()
    payer.pay(4_200, job=first)
    payer.pay(8_400, job=first, stage="plan", store="other")
    payer.pay(42_000, provider="deepseek", job=second, stage="plan")
    reservation = payer.ledger.reserve("jev", CENT, Spender(payer.tenant, None, second, "judge", "read"))
    payer.ledger.settle_at_estimate(reservation, "cut")
    payer.ledger.count("local", Spender(payer.tenant, payer.store("journal"), second, "judge", "read"), 10, 2)
    payer.ledger.close()
    jev = {
        "calls": 3,
        "failed": 1,
        "cached": 0,
        "inputTokens": 300,
        "outputTokens": 10,
        "cost": "0.0000136",
        "currency": "USD",
    }
    assert items(client, "/v1/usage")[1] == {"provider": "jev", **jev}
    assert [(row["provider"], row["cost"], row.get("currency")) for row in items(client, "/v1/usage")] == [
        ("deepseek", "0.000042", "CNY"), ("jev", "0.0000136", "USD"), ("local", "0", None),
    ]  # fmt: skip
    by_stage = {(row["stage"], row["provider"]): row["cost"] for row in items(client, "/v1/usage", by="stage")}
    assert by_stage == {
        ("judge", "jev"): "0.0000052", ("judge", "local"): "0", ("plan", "deepseek"): "0.000042",
        ("plan", "jev"): "0.0000084",
    }  # fmt: skip
    by_store = {(row.get("store"), row["provider"]): row["cost"] for row in items(client, "/v1/usage", by="store")}
    assert by_store == {
        (None, "jev"): "0.000001", ("journal", "jev"): "0.0000042", ("journal", "deepseek"): "0.000042",
        ("journal", "local"): "0", ("other", "jev"): "0.0000084",
    }  # fmt: skip
    by_job = [(row["job"], row["provider"], row["cost"]) for row in items(client, "/v1/usage", by="job")]
    assert by_job == [
        (str(second), "deepseek", "0.000042"), (str(second), "jev", "0.000001"), (str(second), "local", "0"),
        (str(first), "jev", "0.0000126"),
    ]  # fmt: skip
    assert len(items(client, "/v1/usage", by="job", job=str(first))) == 1
    assert len(items(client, "/v1/usage", store="other")) == 1
    (day,) = {row["day"] for row in items(client, "/v1/usage", by="day")}
    assert items(client, "/v1/usage", since=str(day), until=str(day)) == items(client, "/v1/usage")
    assert items(client, "/v1/usage", until="2020-01-01") == []
    for by in ("stage", "job"):
        page = client.get("/v1/usage", params={"by": by, "limit": 1}).json()
        more = client.get("/v1/usage", params={"by": by, "cursor": page["nextCursor"]}).json()
        assert page["items"] + more["items"] == items(client, "/v1/usage", by=by)


def test_wrong_questions_are_told_what_is_wrong(client: httpx.Client) -> None:
    for query, field in (
        ({"by": "tenant"}, "by"), ({"job": str(uuid7())}, "job"), ({"by": "job", "since": "2026-01-01"}, "since"),
        ({"since": "yesterday"}, "since"), ({"cursor": "x"}, "cursor"), ({"stores": "a"}, "stores"),
    ):  # fmt: skip
        answer = client.get("/v1/usage", params=query)
        assert answer.status_code == 422, query
        assert field in answer.text


def test_a_key_for_some_stores_sees_the_money_of_these_alone(api: Api, payer: Payer, tenant: UUID) -> None:
    api.store(tenant, "other")
    payer.pay(4_200, job=uuid7())
    payer.pay(8_400, store="other", job=uuid7())
    payer.pay(100, store=None, job=uuid7())
    with api.client(api.key(tenant, ("read",), ["other"])) as client:
        for by in ("provider", "stage", "store", "day", "job"):
            (row,) = items(client, "/v1/usage", by=by)
            assert row["cost"] == "0.0000084"
        assert [row["store"] for row in items(client, "/v1/budgets")] == ["other"]
        assert items(client, "/v1/usage", store="journal") == []


def test_an_erased_stores_spending_stays(client: httpx.Client, payer: Payer) -> None:
    payer.pay(4_200)
    execute(payer.api.database.admin, "delete from stores where tenant_id = %s", payer.tenant)
    (row,) = items(client, "/v1/usage", by="store")
    assert "store" not in row
    assert row["cost"] == "0.0000042"


def test_operators_set_caps_and_see_every_account(operator: httpx.Client, payer: Payer) -> None:
    payer.pay(4_200_000)
    shown = operator.put("/budgets", json={"caps": {"jev": 0.005}, "jobCaps": {"jev": "0.5", "openai": None}})
    assert shown.status_code == 200
    assert shown.json() == operator.get("/budgets").json()
    accounts = {row["provider"]: row for row in shown.json()["items"]}
    assert accounts["jev"] == {
        "scope": "provider", "provider": "jev", "currency": "USD", "cap": "0.005", "jobCap": "0.5", "spent": "0.0042",
        "reserved": "0",
    }  # fmt: skip
    assert {name: row["cap"] for name, row in accounts.items() if name != "jev"} == {
        "deepseek": "50", "openai": "5", "systemone": "10",
    }  # fmt: skip
    with pytest.raises(BudgetSpent):
        payer.pay(1)
    assert operator.put("/budgets", json={"caps": {"jev": 10}}).status_code == 200
    payer.pay(1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "caps"),
        ({"caps": {"jev": None}}, "caps.jev"),
        ({"caps": {"jev": -1}}, "caps.jev"),
        ({"caps": {"jev": "much"}}, "caps.jev"),
        ({"caps": {"jev": True}}, "caps.jev"),
        ({"caps": {"jev": "0.0000000000001"}}, "caps.jev"),
        ({"jobCaps": {"jev": 1e-13}}, "jobCaps.jev"),
        ({"caps": {"local": 1}}, "caps.local"),
        ({"jobCaps": {"jev": 1e12}}, "jobCaps.jev"),
        ({"caps": {"jev": 1}, "tenant": "acme"}, "tenant"),
        ({"caps": {"jev": 1}, "user": "me"}, "user"),
    ],
)
def test_caps_that_cannot_be_are_refused_by_field(operator: httpx.Client, body: dict[str, object], field: str) -> None:
    answer = operator.put("/budgets", json=body)
    assert answer.status_code == 422
    assert [entry["field"] for entry in answer.json()["errors"]] == [field]


def test_caps_of_a_tenant_that_is_not_there(operator: httpx.Client) -> None:
    assert operator.get("/budgets", params={"tenant": str(uuid7())}).status_code == 404
    assert operator.put("/budgets", json={"tenant": str(uuid7()), "caps": {"jev": 1}}).status_code == 404


def test_a_raised_cap_wakes_what_waits_for_money(api: Api, operator: httpx.Client, tenant: UUID) -> None:
    from tests.rows import ago

    later = -ago(3600)
    (waiting,) = insert_jobs(
        api.database.admin, tenant, "extract.bulk", state="deferred", reason="budget", run_at=later, due_at=later
    )
    (other,) = insert_jobs(
        api.database.admin, tenant, "extract.bulk", state="deferred", reason="embed", run_at=later, due_at=later
    )
    assert operator.put("/budgets", json={"caps": {"jev": 11}}).status_code == 200
    due = dict(execute(api.database.admin, "select job_id, due_at <= now() from jobs where state = 'deferred'"))
    assert due == {waiting: True, other: False}


def test_a_stores_budgets_are_checked_kept_and_change_no_policy_hash(client: httpx.Client, tenant: UUID) -> None:
    plain = client.put("/v1/stores/journal", json={}).json()
    for wrong in ({"jev": -1}, {"local": 1}, {"jev": "x"}, [1], {"jev": None}):
        answer = client.put("/v1/stores/journal", json={"budgets": wrong})
        assert answer.status_code == 422, wrong
        assert answer.json()["errors"][0]["field"].startswith("budgets")
    put = client.put("/v1/stores/journal", json={"budgets": {"jev": "0.25", "deepseek": 3}}).json()
    assert put["configuration"]["budgets"] == {"jev": "0.25", "deepseek": 3}
    assert put["policyHash"] == plain["policyHash"]
    assert [row["cap"] for row in items(client, "/v1/budgets")] == ["3", "0.25"]
    client.put("/v1/stores/journal", json={"budgets": {"jev": 1}})
    assert [row.get("cap") for row in items(client, "/v1/budgets")] == [None, "1"]
