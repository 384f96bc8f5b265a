"""Entities, time, recency and traversal over stored records: what they find, in which order, and for whom."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from core.faults import Faults
from core.records.service import commit_writes
from core.search import finding
from core.search.finding import Finder
from core.search.fusion import DEPTH
from core.search.lexical.model import Scope
from core.search.routes import RECENT
from core.search.temporal import Span, spans
from core.tenants.stores import store_id_of
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.fakes.jobs import WRITE, Jobs

START = datetime(2023, 5, 1, tzinfo=UTC)


class Store:
    """A tenant's journal; records are numbered in the order in which they are written."""

    def __init__(self, database: TestDatabase, tenant: UUID) -> None:
        self.database = database
        self.tenant = tenant
        self.jobs = Jobs(database, tenant)
        with database.app.tenant(tenant) as tx:
            self.id = store_id_of(tx, tenant, "journal")
        self.end = 0

    def write(self, *bodies: dict[str, Any]) -> None:
        accepted = [self.jobs.accept("write", WRITE, body) for body in bodies]
        commit_writes(self.database.app, self.jobs.claim_writes(accepted[0]), Faults())
        self.end += len(bodies)

    def find(self, route: str, *arguments: Any, end: int | None = None, **scope: str) -> Any:
        with self.database.app.tenant(self.tenant) as tx:
            finder = Finder(tx, self.tenant, self.id, self.end if end is None else end, Scope(**scope))
            return getattr(finder, route)(*arguments)


@pytest.fixture
def store(database: TestDatabase, tenant: UUID) -> Store:
    return Store(database, tenant)


def texts(*values: str, **more: Any) -> list[dict[str, Any]]:
    return [{"text": value, **more} for value in values]


def test_who_sees_all_finds_the_same(store: Store) -> None:
    """Without looking at each record's scope."""
    store.write(*texts("GitHub", "GitHub and Redis", "nothing", "Redis"))
    with store.database.app.tenant(store.tenant) as tx:
        for end, found in ((4, [1, 3, 0]), (3, [1, 0]), (1, [0]), (0, [])):
            slow, quick = (Finder(tx, store.tenant, store.id, end, all_seen=seen) for seen in (False, True))
            assert slow.by_entities("GitHub, Redis?") == quick.by_entities("GitHub, Redis?") == found
            assert slow.traverse([0]) == quick.traverse([0])


def test_records_by_their_share_of_the_questions_entities(store: Store) -> None:
    store.write(*texts("GitHub alone", "GitHub and Redis", "nothing", "github in small", "Redis, Docker"))
    assert store.find("by_entities", "Is GitHub using Redis?") == [1, 4, 0]
    assert store.find("by_entities", "is it in redis?") == [4, 1]  # a word that the store knows as an entity
    assert store.find("by_entities", "Docker?") == [4]
    assert store.find("by_entities", "Kubernetes or Nobody?") == []
    assert store.find("by_entities", "what about nothing?") == []


def test_entities_at_a_revision_and_in_a_scope(store: Store) -> None:
    store.write({"text": "GitHub one"}, {"text": "GitHub two", "scope": "project", "workspaceId": "w"})
    store.write(
        {"text": "GitHub three", "scope": "session", "sessionId": "s"},
        {"text": "GitHub four", "scope": "session", "sessionId": "s", "workspaceId": "w"},
    )
    assert store.find("by_entities", "GitHub") == [0]
    assert store.find("by_entities", "GitHub", workspace_id="w") == [1, 0]
    assert store.find("by_entities", "GitHub", session_id="s") == [2, 0]
    assert store.find("by_entities", "GitHub", workspace_id="w", session_id="s") == [3, 2, 1, 0]
    assert store.find("by_entities", "GitHub", workspace_id="w", session_id="s", end=2) == [1, 0]


def test_a_common_entity_gives_its_newest_records(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "HOLDERS", 3)
    store.write(*texts(*["GitHub"] * 5))
    assert store.find("by_entities", "GitHub") == [4, 3, 2]


def test_erased_records_are_not_found(store: Store) -> None:
    store.write({"text": "GitHub one", "id": "one"}, {"text": "GitHub two", "id": "two"})
    job = store.jobs.accept("erase", "write.bulk", {"recordId": "one"}, store="journal")
    commit_writes(store.database.app, store.jobs.claim_writes(job), Faults())
    assert store.find("by_entities", "GitHub") == [1]
    assert store.find("newest") == [1]


def dated(*days: int) -> list[dict[str, Any]]:
    return [{"text": f"day {day}", "at": (START + timedelta(days=day)).isoformat()} for day in days]


def test_records_by_their_distance_to_what_the_question_names(store: Store) -> None:
    store.write(*dated(10, 3, 5, 4, 0, 40))
    question = "What happened from 4 May 2023 to 6 May 2023?"
    assert store.find("by_time", spans(question, START)) == [1, 3, 2, 4, 0, 5]
    assert store.find("by_time", [Span(None, START + timedelta(days=4))]) == [1, 4, 3, 2, 0, 5]
    assert store.find("by_time", [Span(START + timedelta(days=4), None)]) == [3, 2, 0, 5, 1, 4]
    two = [Span(START + timedelta(days=40), None), Span(START, START + timedelta(days=1))]
    assert store.find("by_time", two)[:2] == [4, 5] or store.find("by_time", two)[:2] == [5, 4]
    assert store.find("by_time", []) == []


def test_time_in_a_large_store_is_what_a_full_sort_gives(store: Store) -> None:
    days = [(n * 37) % 1_000 for n in range(700)]
    for start in range(0, 700, 350):
        store.write(*dated(*days[start : start + 350]))
    moments = {n: START + timedelta(days=day) for n, day in enumerate(days)}
    for span in (
        Span(START + timedelta(days=300), START + timedelta(days=310)),
        Span(START + timedelta(days=300), START + timedelta(days=900)),
        Span(START - timedelta(days=9), START - timedelta(days=5)),
        Span(None, START + timedelta(days=20)),
        Span(START + timedelta(days=990), None),
    ):
        wanted = sorted(moments, key=lambda n: (*span.distance(moments[n]), -n))[:DEPTH]
        assert store.find("by_time", [span]) == wanted


def test_the_newest_by_event(store: Store) -> None:
    store.write(*dated(*range(30, 0, -1)))
    store.write({"text": "hidden", "scope": "session", "sessionId": "s", "at": "2024-01-01T00:00:00Z"})
    assert store.find("newest") == list(range(RECENT))
    assert store.find("newest", session_id="s")[:2] == [30, 0]
    assert store.find("newest", end=3) == [0, 1, 2]


def test_traversal_over_shared_entities(store: Store) -> None:
    store.write(*texts("GitHub", "GitHub Redis", "Redis Docker", "Docker", "apart"))
    store.write({"text": "GitHub", "scope": "session", "sessionId": "s"})
    walk = store.find("traverse", [0])
    assert (walk.numbers, walk.linked) == ([0, 1, 2], True)
    assert store.find("traverse", [0], session_id="s").numbers == [0, 5, 1, 2]
    apart = store.find("traverse", [4])
    assert (apart.numbers, apart.linked) == ([4], False)


def test_another_tenants_entities_are_not_known(store: Store, database: TestDatabase) -> None:
    store.write(*texts("GitHub"))
    with database.relay.system() as tx:
        other = create_tenant(tx, "other").id
    assert Store(database, other).find("by_entities", "GitHub", end=10) == []
