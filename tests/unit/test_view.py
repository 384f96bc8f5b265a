import json
from typing import Any

import pytest

from core.jsontext import canonical, sha256_hex
from core.reading.view import Candidate, Ranked, compose, time_key
from core.text import units

POLICY: dict[str, bool] = dict.fromkeys(
    ("planning", "screening", "judging", "coverage", "looping", "consolidation"), False
)


def candidate(
    name: str, content: str, score: float = 1.0, position: tuple[int, int] | None = (1, 0), **more: Any
) -> Candidate:
    record = {"id": name, "kind": "memory-record", "content": content, "data": {}, **more}
    return Candidate(name, sha256_hex(canonical(record)), record, score, position)


def view(*candidates: Candidate, degraded: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
    ranked = Ranked(42, candidates, searches=1, query_ms=3, total_ms=5, degraded=degraded)
    return compose(ranked, policy=POLICY, policy_hash="ab" * 32, **options)


def shown(made: dict[str, Any]) -> list[str]:
    return [item["id"] for item in made["items"]]


def test_the_whole_view() -> None:
    parent = {"id": "d", "sha256": "00" * 32, "start": 5, "end": 13}
    data = {"eventAt": "2026-03-01T09:30:00.000Z", "session": "s-1", "parent": parent}
    made = view(candidate("d-b0001", "été 😀", 2.5, data=data, date="2026-03-01"))
    assert made == {
        "revision": 42,
        "strategy": "simple",
        "policy": POLICY,
        "policyHash": "ab" * 32,
        "blocks": [],
        "items": [
            {
                "id": "d-b0001",
                "sha256": made["items"][0]["sha256"],
                "kind": "memory-record",
                "date": "2026-03-01",
                "eventAt": "2026-03-01T09:30:00.000Z",
                "session": "s-1",
                "score": 2.5,
                "text": "été 😀",
                "span": {"start": 0, "end": 10},
                "parent": parent,
            }
        ],
        "needs": [],
        "stopReason": "retrieval-only",
        "stats": {
            "searches": 1,
            "plannerCalls": 0,
            "decisionCalls": 0,
            "rounds": 0,
            "usage": {"calls": 0, "cached": 0, "byProvider": {}},
            "queryMs": 3,
            "embeddingMs": 0,
            "plannerMs": 0,
            "decisionMs": 0,
            "totalMs": 5,
        },
    }
    assert json.loads(json.dumps(made)) == made


def test_nothing_found() -> None:
    made = view()
    assert (made["items"], made["stopReason"]) == ([], "no-candidates")


def test_retrieval_alone_never_claims_evidence() -> None:
    made = view(candidate("a", "x", 99.0))
    assert not made.get("hasEvidence")
    assert not made.get("covered")


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (16, 16)])
def test_at_most_so_many_items(limit: int, count: int) -> None:
    made = view(*(candidate(f"r{n:02d}", f"text {n}") for n in range(20)), max_items=limit)
    assert shown(made) == [f"r{n:02d}" for n in range(count)]
    assert made["truncated"] is True


def test_all_that_fits_is_not_truncated() -> None:
    assert "truncated" not in view(*(candidate(f"r{n}", f"text {n}") for n in range(16)))


def test_duplicates_by_text_without_its_white_space() -> None:
    made = view(
        candidate("a", "one  two"),
        candidate("b", " one\u00a0two\n"),
        candidate("c", "One two"),
        candidate("d", "onetwo"),
    )
    assert shown(made) == ["a", "c", "d"]
    assert "truncated" not in made
    assert made["items"][0]["text"] == "one  two"


def test_a_record_too_long_for_the_rest_is_skipped_not_a_stop() -> None:
    made = view(
        candidate("a", "a" * 4000), candidate("b", "b" * 4000), candidate("c", "c" * 3000), candidate("d", "d" * 1001),
        candidate("e", "e" * 1000), candidate("f", "f"),
    )  # fmt: skip
    assert shown(made) == ["a", "b", "c", "e"]
    assert made["truncated"] is True


def test_lengths_are_in_units() -> None:
    made = view(*(candidate(c, c * 2000) for c in "😀😁😂"), candidate("d", "d"))
    assert shown(made) == ["😀", "😁", "😂"]
    assert sum(units(item["text"]) for item in made["items"]) == 12_000


def test_a_long_record_shows_its_beginning() -> None:
    made = view(candidate("a", "é" + "😀" * 3000))
    [item] = made["items"]
    assert item["text"] == "é" + "😀" * 1999
    assert item["span"] == {"start": 0, "end": 2 + 4 * 1999}
    assert item["truncated"] is True
    assert made["truncated"] is True


def dated(name: str, at: object, position: tuple[int, int] = (1, 0), **more: Any) -> Candidate:
    return candidate(name, f"text of {name}", position=position, data={"eventAt": at} if at else {}, **more)


def test_time_order() -> None:
    items = [
        dated("undated", "some day"),
        dated("new", "2026-03-02T00:00:00Z"),
        dated("zone", "2026-03-01T23:00:00-02:00"),
        dated("day", None, date="2026-03-02"),
        dated("created", None, createdAt="2026-03-01T12:00:00.000Z"),
        dated("event first", "2026-01-01T00:00:00.000Z", date="2027-01-01"),
        dated("nothing", None),
    ]
    assert shown(view(*items, order="time")) == [
        "event first", "created", "day", "new", "zone", "nothing", "undated"
    ]  # fmt: skip
    assert shown(view(*items)) == [item.id for item in items]


def test_equal_times_are_in_write_order_then_by_id() -> None:
    at = "2026-03-01T00:00:00Z"
    items = [
        dated("c", at, (2, 0)), dated("b", at, (1, 1)), dated("z", at, (1, 0)), dated("a", at, (2, 0)),
        dated("x", "never", (1, 0)), dated("y", "unknown", (0, 9)),
    ]  # fmt: skip
    assert shown(view(*items, order="time")) == ["z", "b", "a", "c", "y", "x"]


def test_an_unparseable_event_time_does_not_fall_back_to_the_date() -> None:
    assert time_key(dated("a", "soon", date="2026-03-01"))[0] is True


def test_time_order_changes_nothing_but_the_order() -> None:
    items = [dated(f"r{n}", f"2026-03-{20 - n:02d}T00:00:00Z") for n in range(18)]
    by_rank, by_time = view(*items), view(*items, order="time")
    assert by_time["items"] == by_rank["items"][::-1]
    assert {**by_time, "items": []} == {**by_rank, "items": []}


def test_without_write_positions_the_rank_order_stays() -> None:
    items = [dated("b", "2026-03-02T00:00:00Z"), candidate("a", "x", position=None)]
    made = view(*items, order="time", degraded=("lexical-index",))
    assert shown(made) == ["b", "a"]
    assert made["stats"]["degraded"] == ["lexical-index", "order"]
    assert view(*items, degraded=("lexical-index",))["stats"]["degraded"] == ["lexical-index"]
