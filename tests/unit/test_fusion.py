"""Fusion, cue pool and pages, against the vectors of memory-agent.md's appendix and literal re-implementations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidRequest
from core.search.fusion import DEPTH, rrf
from core.search.paging import PAGE_RECORDS, PAGE_UNITS, RECORD_UNITS, Cursor, page, parse_cursor, search_digest
from core.search.pool import pool
from core.search.routes import REACHED, traverse
from core.text import units

rankings = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=5)


def test_rrf_vector() -> None:
    fused = rrf([["a", "b", "c"], ["c", "d", "a"]])
    assert [own_id for own_id, _ in fused] == ["a", "c", "b", "d"]
    assert fused[0][1] == fused[1][1] == 0.03279569892473118
    assert fused[2][1] == fused[3][1] == 1 / 61


def test_only_the_first_200_of_a_ranking_count() -> None:
    ids = [f"r{n:03}" for n in range(DEPTH + 1)]
    fused = dict(rrf([ids, ["r200"]]))
    assert len(fused) == DEPTH + 1
    assert fused["r200"] == 1 / 60
    assert fused["r199"] == 1 / 259


@given(rankings)
def test_rrf_is_the_sum_over_rankings_in_order(lists: list[list[str]]) -> None:
    fused = rrf(lists)
    for own_id, score in fused:
        assert score == sum(1 / (60 + found.index(own_id)) for found in lists if own_id in found)
    assert {own_id for own_id, _ in fused} == {own_id for found in lists for own_id in found}
    assert fused == sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def test_pool_vector() -> None:
    assert pool([list("abcd"), list("bef"), list("ag")], 6) == list("abefgc")


@pytest.mark.parametrize(
    ("lists", "limit", "expected"),
    [([], 48, []), ([[]], 48, []), (["abc"], 2, ["a", "b"]), (["ab", "cd", "ef"], 2, ["a", "c"]),
     (["ba", "ab"], 4, ["b", "a"])],
)  # fmt: skip
def test_small_pools(lists: list[str], limit: int, expected: list[str]) -> None:
    assert pool([list(found) for found in lists], limit) == expected


@given(rankings, st.integers(1, 10))
def test_pool_follows_its_three_steps(lists: list[list[str]], limit: int) -> None:
    quota = max(1, limit // max(1, len(lists)))
    expected: list[str] = []
    for found in lists:
        for _ in range(quota):
            fresh = [own_id for own_id in found if own_id not in expected]
            if fresh and len(expected) < limit:
                expected.append(fresh[0])
    order = list(dict.fromkeys(own_id for found in lists for own_id in found))
    score = {own_id: sum(1 / (60 + found.index(own_id)) for found in lists if own_id in found) for own_id in order}
    rest = [own_id for own_id in sorted(order, key=lambda own_id: -score[own_id]) if own_id not in expected]
    assert pool(lists, limit) == (expected + rest)[:limit]


# -- pages ------------------------------------------------------------------------------------------------------------------


def test_a_page_holds_twenty_records() -> None:
    found = [(f"r{n}", "text") for n in range(45)]
    first, second, third = page(found), page(found, 20), page(found, 40)
    assert [record.id for record in first.records] == [f"r{n}" for n in range(20)]
    assert [first.next_offset, second.next_offset, third.next_offset] == [20, 40, None]
    assert [first.truncated, second.truncated, third.truncated] == [True, True, False]


def test_the_last_record_is_cut_to_fit_and_the_next_page_starts_after_it() -> None:
    found = [(f"r{n}", "x" * 3_500) for n in range(5)]
    first = page(found)
    assert [len(record.text) for record in first.records] == [3_500, 3_500, 3_500, 1_500]
    assert [record.cut for record in first.records] == [False, False, False, True]
    assert first.next_offset == 4
    assert [record.id for record in page(found, 4).records] == ["r4"]


def test_a_long_record_is_shown_from_its_beginning() -> None:
    only = page([("r", "é" * 5_000)])
    assert len(only.records[0].text) == RECORD_UNITS
    assert only.truncated
    assert only.next_offset is None


def test_a_pair_is_not_split_and_what_cannot_begin_goes_to_the_next_page() -> None:
    found = [("a", "x" * 4_000), ("b", "x" * 4_000), ("c", "x" * 3_999), ("d", "😀")]
    assert [record.id for record in page(found).records] == ["a", "b", "c"]
    assert page(found).next_offset == 3
    assert page(found, 3).records[0].text == "😀"


def test_an_offset_beyond_the_result_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="beyond the result"):
        page([("a", "x")], 1)
    assert page([]).records == []


@given(st.lists(st.one_of(st.text(max_size=30), st.integers(0, 6_000).map(lambda n: "😀x" * (n // 3))), max_size=60))
def test_pages_hold_every_record_once_within_bounds(texts: list[str]) -> None:
    found = [(str(n), text) for n, text in enumerate(texts)]
    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        one = page(found, offset)
        assert len(one.records) <= PAGE_RECORDS
        assert sum(units(record.text) for record in one.records) <= PAGE_UNITS
        for record in one.records:
            content = texts[int(record.id)]
            assert content.startswith(record.text)
            assert record.cut == (record.text != content)
        seen += [record.id for record in one.records]
        offset = one.next_offset
    assert seen == [own_id for own_id, _ in found]


SEARCH = {"store": "s", "revision": 7, "scope": {"workspaceId": "w"}, "query": {"text": "q", "k": 5}}


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = Cursor(40, 7, search_digest(**SEARCH))  # pyright: ignore[reportArgumentType]
    assert parse_cursor(cursor.token()) == cursor
    cursor.check(search_digest(**SEARCH))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "other",
    [{"store": "t"}, {"revision": 8}, {"scope": {}}, {"scope": {"sessionId": "w"}}, {"query": {"text": "q", "k": 6}}],
)
def test_a_cursor_holds_for_its_own_search_only(other: dict[str, object]) -> None:
    cursor = Cursor(40, 7, search_digest(**SEARCH))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidRequest, match="another search"):
        cursor.check(search_digest(**{**SEARCH, **other}))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("token", ["", "x", "=", "!!!!", "AAAA", "é", "A" * 400, Cursor(1, 1, b"d" * 16).token()[:-2]])
def test_what_is_no_cursor_is_refused(token: str) -> None:
    with pytest.raises(InvalidRequest, match="no cursor"):
        parse_cursor(token)


# -- traversal --------------------------------------------------------------------------------------------------------------


def walk(anchors: list[int], named: dict[int, list[str]]) -> tuple[list[int], bool]:
    records: dict[str, list[int]] = {}
    for number, entities in named.items():
        for entity in entities:
            records.setdefault(entity, []).append(number)
    found = traverse(
        anchors,
        lambda numbers: {number: named[number] for number in numbers if number in named},
        lambda entities: {entity: records.get(entity, []) for entity in entities},
    )
    return found.numbers, found.linked


def test_traversal_goes_two_hops_nearest_first() -> None:
    named = {1: ["a"], 2: ["a", "b"], 3: ["b", "c"], 4: ["c"], 5: ["a"], 6: ["z"]}
    assert walk([1], named) == ([1, 5, 2, 3], True)  # 4 is three hops away, 6 is not linked


def test_more_shared_entities_come_first() -> None:
    assert walk([1], {1: ["a", "b"], 2: ["a", "b"], 9: ["a"]}) == ([1, 2, 9], True)


def test_anchors_alone_are_no_link() -> None:
    assert walk([3, 1], {1: ["a"], 3: []}) == ([3, 1], False)
    assert walk([], {}) == ([], False)


def test_traversal_is_bounded() -> None:
    numbers, linked = walk([0, 1, 2, 3, 4, 5], {n: ["a"] for n in range(100)})
    assert linked
    assert numbers == [0, 1, 2, 3, 4, *range(99, 99 - (REACHED - 5), -1)]
