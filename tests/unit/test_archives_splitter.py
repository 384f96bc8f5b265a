"""The array splitter: what `json` makes of the whole, whatever the chunks; and its bounds."""

import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.archives.splitter import MAX_DEPTH, BadItem, BrokenArray, Item, array_items, more_items

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None) | st.sampled_from('"\\[]{},:')),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


def values(raw: bytes, **options: int) -> list[object]:
    found = list(array_items(io.BytesIO(raw), **options))
    assert [item.index for item in found] == list(range(len(found)))
    return [item.value if isinstance(item, Item) else item.reason for item in found]


@given(
    st.lists(VALUES, max_size=6),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b" \n\t\r"]),
)
def test_it_gives_what_json_gives_for_any_chunk_size(
    array: list[object], chunk: int, ascii_only: bool, indent: int | None, before: bytes
) -> None:
    raw = json.dumps(array, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    # Compared as text: an escaped pair of surrogates reads as one character, in both readings alike.
    assert json.dumps(values(before + raw + b"\n ", chunk_bytes=chunk)) == json.dumps(
        json.loads(raw.decode("utf-8", "surrogatepass"))
    )


@given(st.binary(max_size=60), st.integers(1, 8))
def test_any_bytes_end_in_items_or_a_clear_error(raw: bytes, chunk: int) -> None:
    try:
        whole = list(array_items(io.BytesIO(b"[" + raw), chunk_bytes=64))
    except BrokenArray as error:
        with pytest.raises(BrokenArray, match="^" + str(error)[:20]):
            list(array_items(io.BytesIO(b"[" + raw), chunk_bytes=chunk))
        return
    assert list(array_items(io.BytesIO(b"[" + raw), chunk_bytes=chunk)) == whole


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize(
    ("raw", "good", "why"),
    [
        (b"", [], "it is empty"),
        (b"\xef\xbb\xbf", [], "it is empty"),
        (b'{"conversations": []}', [], "not a JSON array"),
        (b"[1, 2, 3", [1, 2], "breaks off in entry 3"),
        (b'[{"a": 1}, {"b": "]', [{"a": 1}], "breaks off in entry 2"),
        (b"[1, 2] [3]", [1, 2], "follows the end"),
        (b"[1, 2]]", [1, 2], "follows the end"),
        (b"[1, 2}", [1], "bracket does not match"),
    ],
)
def test_a_broken_array_says_so_after_its_good_items(raw: bytes, good: list[object], why: str, chunk: int) -> None:
    items = array_items(io.BytesIO(raw), chunk_bytes=chunk)
    assert [next(items) for _ in good] == [Item(index, value) for index, value in enumerate(good)]
    with pytest.raises(BrokenArray, match=why):
        next(items)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (b'{"a": }', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"1" * 5000, "not valid JSON"),
        (b'"\xff"', "not UTF-8"),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, f"nested deeper than {MAX_DEPTH} levels"),
        (b"[" * 100_000 + b"]" * 100_000, f"nested deeper than {MAX_DEPTH} levels"),
        (b'"' + b"x" * 100_000 + b'"', "larger than 50000 bytes"),
    ],
)
def test_a_bad_item_costs_only_itself(item: bytes, reason: str) -> None:
    found = list(array_items(io.BytesIO(b'["before",' + item + b',"after"]'), chunk_bytes=1000, max_item_bytes=50_000))
    assert found == [Item(0, "before"), BadItem(1, reason), Item(2, "after")]


def test_the_deepest_nesting_allowed_is_read() -> None:
    inner = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    assert values(b"[" + inner + b"]") == [json.loads(inner)]


def test_emoji_stored_as_two_surrogates_are_read() -> None:
    assert values(b'["\xed\xa0\xbd\xed\xb8\x82"]', chunk_bytes=2) == ["\ud83d\ude02"]


def test_memory_is_bounded_by_the_largest_item_not_by_the_array() -> None:
    class Endless(io.RawIOBase):
        """An array of 64 MiB: many small items around one that is far over the limit."""

        def __init__(self) -> None:
            self._blocks = iter(
                [b"[0", *([b', "' + b"a" * 60_000 + b'"'] * 500), b', "', *([b"b" * 65_536] * 500), b'"]']
            )
            self._rest = b""

        def read(self, size: int = -1) -> bytes:
            while len(self._rest) < size and (block := next(self._blocks, None)) is not None:
                self._rest += block
            data, self._rest = self._rest[:size], self._rest[size:]
            return data

    tracemalloc.start()
    try:
        bad = [item for item in array_items(Endless(), max_item_bytes=1_000_000) if isinstance(item, BadItem)]  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bad == [BadItem(501, "larger than 1000000 bytes")]
    assert peak < 8_000_000


@given(
    st.lists(VALUES, min_size=1, max_size=6),
    st.integers(1, 40),
    st.sampled_from([b"", b"\xef\xbb\xbf", b" \n"]),
    st.sampled_from([b"", b"\n "]),
)
def test_it_goes_on_behind_any_item_as_if_it_had_read_all(
    array: list[object], chunk: int, before: bytes, behind: bytes
) -> None:
    raw = before + json.dumps(array, indent=1).encode() + behind
    whole = list(array_items(io.BytesIO(raw), chunk_bytes=7))
    for item in whole:
        stream = io.BytesIO(raw)
        stream.seek(item.end)
        rest = list(more_items(stream, item.index + 1, item.end, chunk_bytes=chunk))
        assert json.dumps([str(one) for one in rest]) == json.dumps([str(one) for one in whole[item.index + 1 :]])


@pytest.mark.parametrize("raw", [b"[1,2,3] x", b"[1,2,3", b"[1,2,,3}"])
def test_what_breaks_behind_the_place_is_told_from_there_too(raw: bytes) -> None:
    found: list[Item | BadItem] = []
    with pytest.raises(BrokenArray) as first:
        found.extend(array_items(io.BytesIO(raw)))
    for place in found:
        with pytest.raises(BrokenArray) as again:
            list(more_items(io.BytesIO(raw[place.end :]), place.index + 1, place.end))
        assert str(again.value) == str(first.value)
    assert len(found) >= 2


def test_a_place_at_which_no_item_ends_is_refused() -> None:
    with pytest.raises(BrokenArray, match="it has changed since its first 2 items were read"):
        list(more_items(io.BytesIO(b"[1,2,3]"), 2, 0))
