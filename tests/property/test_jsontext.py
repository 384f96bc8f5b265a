"""Our canonical form against an independent implementation of RFC 8785."""

import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from core.errors import InvalidRequest
from core.jsontext import SAFE_INTEGER, canonical, dumps, loads

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.one_of(
    st.integers(-SAFE_INTEGER, SAFE_INTEGER), st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e-5, 1e-5)
)
# Keys on both sides of the surrogates, where the order of units and of points part.
KEYS = st.one_of(TEXT, st.text(st.sampled_from("a\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=3))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(VALUES)
@example({"\uffff": 1, "\U00010000": 2})
@example({"a": 1e21, "b": 1e-7, "c": -0.0})
def test_as_rfc8785(value: object) -> None:
    assert canonical(value).encode() == rfc8785.dumps(value)  # pyright: ignore[reportArgumentType]


@given(st.dictionaries(st.text(st.characters(codec="ascii")), TEXT | st.integers(-SAFE_INTEGER, SAFE_INTEGER)))
def test_the_fast_way_as_rfc8785(value: dict[str, str | int]) -> None:
    assert canonical(value).encode() == rfc8785.dumps(value)  # pyright: ignore[reportArgumentType]


# A whole double from 2^53 on reads back as an integer, which has no exact canonical form.
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.floats(-1e15, 1e15) | TEXT,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=6),
        max_leaves=20,
    )
)
def test_round_trips(value: object) -> None:
    assert loads(canonical(value).encode()) == value
    assert loads(dumps(value).encode()) == value
    assert canonical(loads(canonical(value).encode())) == canonical(value)


@given(st.binary())
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = loads(body)
    except InvalidRequest:
        return
    assert loads(dumps(value).encode()) == value
