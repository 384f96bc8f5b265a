"""The exporter: right ages whatever else waits, zeros when empty, nothing at all when it does not know (C2, N1, N3, S39)."""

import threading
from collections.abc import Callable, Iterator
from uuid import UUID

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.clock import monotonic
from core.ids import uuid7
from core.jobs.backlog import QueueBacklog
from core.settings import Settings, load
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.rows import ago, execute, insert_jobs
from workers.exporter import QUEUE_GAUGES, BacklogCollector, Exporter, Snapshot
from workers.queues import QUEUES

Samples = dict[tuple[str, str], float]


def scrape(port: int) -> Samples:
    """(metric, queue or role or "") to value."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).raise_for_status().text
    return {
        (sample.name, sample.labels.get("queue") or sample.labels.get("role") or ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def settings(database: TestDatabase, **more: str) -> Settings:
    return load({}, database_url=database.dsn("exporter"), exporter_bind="127.0.0.1:0", **more)


@pytest.fixture
def show(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Samples]]:
    """Scrapes an exporter that keeps no snapshot for later."""
    monkeypatch.setattr(Snapshot, "serves", 0.0)
    with Exporter(settings(database)) as exporter:
        yield lambda: scrape(exporter.port)


@pytest.fixture
def store(database: TestDatabase, tenant: UUID) -> UUID:
    return execute(database.admin, "select store_id from stores where tenant_id = %s", tenant)[0][0]


def test_an_empty_database_reads_zero_on_every_queue(show: Callable[[], Samples]) -> None:
    samples = show()
    for name in QUEUE_GAUGES:
        assert {label: value for (gauge, label), value in samples.items() if gauge == name} == dict.fromkeys(QUEUES, 0)
    assert samples["muniment_exporter_up", ""] == 1
    assert samples["muniment_processes_alive", "relay"] == 0


def test_money_is_shown_by_provider_and_what_waits_for_it_by_reason(
    database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Snapshot, "serves", 0.0)
    execute(
        database.admin, "update budget_accounts set spent = 1500000000, reserved = 250000000 where provider = 'jev'"
    )
    for reason, age in (("budget", 60), ("budget", 5), ("strange", 7)):
        insert_jobs(database.admin, tenant, "extract.bulk", state="deferred", reason=reason, ready_at=ago(age))
    with Exporter(settings(database)) as exporter:
        text = httpx.get(f"http://127.0.0.1:{exporter.port}/metrics", timeout=10).text
    for line in (
        'muniment_budget_cap_units{currency="USD",provider="jev"} 10.0',
        'muniment_budget_cap_units{currency="CNY",provider="deepseek"} 50.0',
        'muniment_budget_spent_units{currency="USD",provider="jev"} 1.5',
        'muniment_budget_reserved_units{currency="USD",provider="jev"} 0.25',
        'muniment_reservation_oldest_age_seconds{provider="jev"} 0.0',
        'muniment_deferred_reason_jobs{reason="budget"} 2.0',
        'muniment_deferred_reason_jobs{reason="embed"} 0.0',
        'muniment_deferred_reason_jobs{reason="other"} 1.0',
        'muniment_deferred_reason_oldest_age_seconds{reason="budget"} 6',
    ):
        assert line in text, line


def test_it_sees_every_tenant_as_its_own_role(database: TestDatabase, show: Callable[[], Samples]) -> None:
    for age in (30, 90):
        with database.relay.system() as tx:
            tenant = create_tenant(tx, f"tenant-{age}").id
        insert_jobs(database.admin, tenant, "read.interactive", ready_at=ago(age))
    samples = show()
    assert samples["muniment_ready_jobs", "read.interactive"] == 2
    assert 90 <= samples["muniment_ready_oldest_age_seconds", "read.interactive"] < 120
    assert samples["muniment_ready_jobs", "write.bulk"] == 0


def test_the_states_are_counted_apart(database: TestDatabase, tenant: UUID, show: Callable[[], Samples]) -> None:
    queue = "import.bulk"
    insert_jobs(database.admin, tenant, queue, 1, state="queued", ready_at=ago(500), run_at=ago(-60))
    insert_jobs(database.admin, tenant, queue, 2, state="deferred", ready_at=ago(500), run_at=ago(-60), reason="budget")
    insert_jobs(database.admin, tenant, queue, 3, state="waiting", ready_at=ago(500))
    insert_jobs(database.admin, tenant, queue, 4, state="dead", ready_at=ago(500), finished_at=ago(400))
    insert_jobs(database.admin, tenant, queue, 5, state="succeeded", ready_at=ago(500), finished_at=ago(400))
    insert_jobs(
        database.admin, tenant, queue, 6, state="running", ready_at=ago(500), sent_at=ago(40), started_at=ago(40)
    )
    samples = show()
    counts = {name: samples[name, queue] for name in QUEUE_GAUGES if name.endswith("_jobs")}
    assert counts == {
        "muniment_ready_jobs": 0,
        "muniment_inflight_jobs": 6,
        "muniment_parked_jobs": 1,
        "muniment_deferred_jobs": 2,
        "muniment_waiting_jobs": 3,
        "muniment_dead_jobs": 4,
    }
    assert samples["muniment_ready_oldest_age_seconds", queue] == 0
    assert samples["muniment_unsent_oldest_age_seconds", queue] == 0
    assert 40 <= samples["muniment_inflight_oldest_age_seconds", queue] < 60


def test_ten_thousand_parked_rows_hide_no_stuck_one(
    database: TestDatabase, tenant: UUID, show: Callable[[], Samples]
) -> None:
    insert_jobs(database.admin, tenant, "import.bulk", 10_000, ready_at=ago(9_000), run_at=ago(-60))
    insert_jobs(database.admin, tenant, "import.bulk", 1, ready_at=ago(200))
    samples = show()
    assert samples["muniment_parked_jobs", "import.bulk"] == 10_000
    assert 200 <= samples["muniment_ready_oldest_age_seconds", "import.bulk"] < 230
    assert 200 <= samples["muniment_unsent_oldest_age_seconds", "import.bulk"] < 230


def test_a_write_behind_a_parked_one_is_not_ready(
    database: TestDatabase, tenant: UUID, store: UUID, show: Callable[[], Samples]
) -> None:
    queue = "write.interactive"
    insert_jobs(database.admin, tenant, queue, 1, store_id=store, ready_at=ago(100), run_at=ago(-60))
    insert_jobs(database.admin, tenant, queue, 3, store_id=store, ready_at=ago(100))
    samples = show()
    assert samples["muniment_ready_oldest_age_seconds", queue] == 0
    assert samples["muniment_parked_jobs", queue] == 4


def test_a_write_behind_another_waits_but_is_owed_no_wake_up(
    database: TestDatabase, tenant: UUID, store: UUID, show: Callable[[], Samples]
) -> None:
    queue = "write.interactive"
    insert_jobs(database.admin, tenant, queue, store_id=store, state="running", sent_at=ago(5), started_at=ago(5))
    insert_jobs(database.admin, tenant, queue, 3, store_id=store, ready_at=ago(100))
    samples = show()
    assert samples["muniment_ready_jobs", queue] == 3
    assert samples["muniment_ready_oldest_age_seconds", queue] >= 100
    assert samples["muniment_unsent_oldest_age_seconds", queue] == 0


def test_the_first_write_of_a_store_is_owed_one(
    database: TestDatabase, tenant: UUID, store: UUID, show: Callable[[], Samples]
) -> None:
    insert_jobs(database.admin, tenant, "write.interactive", 3, store_id=store, ready_at=ago(100))
    assert show()["muniment_unsent_oldest_age_seconds", "write.interactive"] >= 100


@pytest.mark.parametrize(("sent", "owed"), [(15, True), (16, False)])
def test_a_tenant_at_its_limit_is_owed_no_wake_up(
    database: TestDatabase, tenant: UUID, show: Callable[[], Samples], sent: int, owed: bool
) -> None:
    queue = "read.interactive"
    insert_jobs(database.admin, tenant, queue, sent, sent_at=ago(2), ready_at=ago(2))
    insert_jobs(database.admin, tenant, queue, 1, ready_at=ago(100))
    samples = show()
    assert samples["muniment_ready_jobs", queue] == sent + 1
    assert (samples["muniment_unsent_oldest_age_seconds", queue] >= 100) is owed


def test_a_weight_raises_the_limit(database: TestDatabase, tenant: UUID, show: Callable[[], Samples]) -> None:
    execute(database.admin, "update tenants set weight = 2 where tenant_id = %s", tenant)
    insert_jobs(database.admin, tenant, "read.interactive", 16, sent_at=ago(2), ready_at=ago(2))
    insert_jobs(database.admin, tenant, "read.interactive", 1, ready_at=ago(100))
    assert show()["muniment_unsent_oldest_age_seconds", "read.interactive"] >= 100


def test_when_the_source_fails_there_is_no_number(database: TestDatabase, show: Callable[[], Samples]) -> None:
    before = show()
    execute(database.admin, "revoke select on backlog from muniment_exporter")
    samples = show()
    assert not [name for name, _ in samples if name in QUEUE_GAUGES or name == "muniment_processes_alive"]
    assert samples["muniment_exporter_up", ""] == 0
    success = "muniment_exporter_last_success_timestamp_seconds", ""
    assert samples[success] == before[success]
    execute(database.admin, "grant select on backlog to muniment_exporter")
    assert show()["muniment_ready_jobs", "read.interactive"] == 0


def test_a_database_that_is_not_there_is_reported_in_time(database: TestDatabase) -> None:
    nowhere = database.dsn("exporter").rpartition("/")[0] + "/no_such_database"
    with Exporter(load({}, database_url=nowhere, exporter_bind="127.0.0.1:0")) as exporter:
        samples = scrape(exporter.port)
        assert samples == {("muniment_exporter_up", ""): 0}
        answer = httpx.get(f"http://127.0.0.1:{exporter.port}/readyz", timeout=10)
    assert answer.status_code == 503
    assert answer.json()["reasons"]


def test_a_snapshot_serves_for_a_second(database: TestDatabase, tenant: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.exporter.CACHE_SECONDS", 60.0)
    with Exporter(settings(database)) as exporter:
        first = scrape(exporter.port)
        insert_jobs(database.admin, tenant, "read.interactive", 1)
        assert scrape(exporter.port) == first


def test_a_late_snapshot_serves_the_next_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.exporter.ANSWER_SECONDS", 0.01)
    go = threading.Event()
    read = threading.Event()

    def slow() -> Snapshot:
        assert go.wait(10)
        read.set()
        return Snapshot([QueueBacklog("read.interactive", 7, 1, 0, 0, 0, 0, 0, 0, 0)], [], monotonic(), 0, 5)

    collector = BacklogCollector(slow)

    def ready_jobs() -> list[float]:
        return [
            s.value for family in collector.collect() if family.name == "muniment_ready_jobs" for s in family.samples
        ]

    try:
        assert ready_jobs() == []
        assert collector.problems() == ["Postgres did not answer in time"]
        go.set()
        assert read.wait(10)
        deadline = monotonic() + 10
        while not (found := ready_jobs()):
            assert monotonic() < deadline
        assert found == [7]
        assert collector.problems() == []
    finally:
        go.set()
        collector.close()


def test_series_do_not_grow_with_tenants_jobs_or_process_names(
    database: TestDatabase, show: Callable[[], Samples]
) -> None:
    before = show()
    for n in range(20):
        with database.relay.system() as tx:
            tenant = create_tenant(tx, f"tenant-{n}").id
        insert_jobs(database.admin, tenant, "write.bulk", 50)
        execute(
            database.admin,
            "insert into processes (process_id, role, host, pid) values (%s, %s, 'h', 1)",
            uuid7(),
            f"odd-{n}",
        )
    after = show()
    assert after.keys() == before.keys()
    assert after["muniment_ready_jobs", "write.bulk"] == 1_000
    assert after["muniment_processes_alive", "other"] == 20
