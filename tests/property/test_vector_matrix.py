"""Vector search in memory against the literal definition: filters, growth, ties, and recall beyond the exact size."""

from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.search.vectors import matrix
from core.search.vectors.matrix import BLOCK, EXACT, Matrix, top

Array = np.ndarray[Any, Any]


def literal(vectors: Array, present: Array, query: Array, k: int, visible: Array | None) -> list[int]:
    seen = [
        n for n in range(len(vectors)) if present[n] and (visible is None or (n < len(visible) and bool(visible[n])))
    ]  # fmt: skip
    return sorted(seen, key=lambda n: (-float(vectors[n] @ query), n))[:k]


def whole(rng: np.random.Generator, *shape: int) -> Array:
    """Small whole numbers: products are exact in any order, and there are many ties."""
    return rng.integers(-2, 3, shape).astype(np.float32)


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 90), max_size=5),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 250)),
)
@settings(max_examples=60)
def test_any_growth_and_filter(seed: int, sizes: list[int], k: int, reach: int | None) -> None:
    rng = np.random.default_rng(seed)
    grown, vectors, present = Matrix(3), np.empty((0, 3), np.float32), np.empty(0, np.bool_)
    query = whole(rng, 3)
    views = [(grown.view(), 0)]
    for size in sizes:
        there = rng.random(size) < 0.8
        rows = whole(rng, size, 3) * there[:, None]
        grown.append(rows, there)
        vectors, present = np.concatenate([vectors, rows]), np.concatenate([present, there])
        views.append((grown.view(), len(vectors)))
    visible = None if reach is None else rng.random(reach) < 0.7
    for view, count in views:  # a view stays as it was
        found = view.similar(query, k, visible)
        assert found.numbers.tolist() == literal(vectors[:count], present[:count], query, k, visible)
        np.testing.assert_array_equal(found.cosines, vectors[:count][found.numbers] @ query)
    numbers = np.arange(len(vectors) + 3)
    known = grown.view().cosines(query, numbers)
    np.testing.assert_array_equal(np.isnan(known), ~np.append(present, [False] * 3))
    np.testing.assert_array_equal(known[: len(vectors)][present], (vectors @ query)[present])
    every = grown.view().every(query, visible)
    np.testing.assert_array_equal(every, np.where(present, vectors @ query, np.nan))


@given(st.lists(st.integers(-3, 3)), st.integers(0, 10))
def test_top_collects_ties_at_the_edge(values: list[int], k: int) -> None:
    scores = np.array([-np.inf if value == -3 else value for value in values], np.float32)
    expected = sorted((n for n in range(len(values)) if values[n] > -3), key=lambda n: (-values[n], n))[:k]
    assert top(np.arange(len(values)), scores, k).numbers.tolist() == expected


def clustered(rng: np.random.Generator, count: int, dimensions: int, clusters: int) -> Array:
    centres = rng.standard_normal((clusters, dimensions), np.float32)
    rows = centres[rng.integers(0, clusters, count)] + 0.7 * rng.standard_normal((count, dimensions), np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def large() -> tuple[Array, Matrix]:
    vectors = clustered(np.random.default_rng(7), 40_000, 256, 400)
    grown = Matrix(256)
    for start in range(0, len(vectors), 3_000):
        part = vectors[start : start + 3_000]
        grown.append(part, np.ones(len(part), np.bool_))
    return vectors, grown


def recalls(vectors: Array, grown: Matrix, visible: Array | None) -> list[float]:
    view, found = grown.view(), []
    for n in range(0, 40_000, 1_000):
        query = vectors[n] + 0.03 * np.random.default_rng(n).standard_normal(vectors.shape[1], np.float32)
        exact = vectors @ query
        if visible is not None:
            exact[~visible] = -np.inf
        wanted = np.argsort(-exact, kind="stable")[:48]
        similar = view.similar(query.astype(np.float32), 48, visible)
        np.testing.assert_allclose(similar.cosines, exact[similar.numbers], atol=1e-4)
        found.append(len(set(wanted.tolist()) & set(similar.numbers.tolist())) / 48)
    return found


def test_recall_beyond_the_exact_size(large: tuple[Array, Matrix]) -> None:
    vectors, grown = large
    assert grown.count > EXACT + 2 * BLOCK
    assert np.mean(recalls(vectors, grown, None)) >= 0.99


def test_a_rare_scope_loses_nothing_beyond_the_exact_size(large: tuple[Array, Matrix]) -> None:
    """What a graph with a filter after it gets wrong (queue-facts.md C6): here the filter comes first."""
    vectors, grown = large
    rare = np.random.default_rng(1).random(len(vectors)) < 0.01
    assert min(recalls(vectors, grown, rare)) == 1.0


def test_every_cosine_beyond_the_exact_size_is_about_right_and_of_the_nearest_exact(
    large: tuple[Array, Matrix],
) -> None:
    vectors, grown = large
    every = grown.view().every(vectors[500])
    exact = vectors @ vectors[500]
    np.testing.assert_allclose(np.sort(every)[-48:], np.sort(exact)[-48:], atol=1e-4)
    assert np.abs(every - exact).max() < 0.2


def test_memory_beyond_the_exact_size_is_less_than_all_of_it(large: tuple[Array, Matrix]) -> None:
    vectors, grown = large
    assert grown.nbytes < 1.1 * vectors.nbytes


@pytest.mark.parametrize("dimensions", [1, 64, 384, 768, 1024, 1536, 3072])
def test_any_dimension(dimensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """failure-cases.md H16. Blocks made small, so that each length is sketched if it can be."""
    monkeypatch.setattr(matrix, "EXACT", 512)
    monkeypatch.setattr(matrix, "BLOCK", 256)
    vectors = clustered(np.random.default_rng(dimensions), 1_100, dimensions, 20)
    grown = Matrix(dimensions)
    grown.append(vectors, np.ones(len(vectors), np.bool_))
    exact = vectors @ vectors[1_000]
    found = grown.view().similar(vectors[1_000], 10)
    np.testing.assert_allclose(found.cosines, np.sort(exact)[::-1][:10], atol=2e-4)


@pytest.mark.parametrize("busy", [False, True])
def test_many_blocks_are_multiplied_whether_the_helper_is_free_or_not(
    busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "BLOCK", 64)
    rng = np.random.default_rng(5)
    vectors, query = whole(rng, matrix.SHARED * 64 + 10, 7), whole(rng, 7)
    grown = Matrix(7)
    grown.append(vectors, np.ones(len(vectors), np.bool_))
    done = Event()
    if busy:
        matrix._helper.submit(done.wait, 20)  # pyright: ignore[reportPrivateUsage]
    try:
        np.testing.assert_array_equal(grown.view().every(query), vectors @ query)
    finally:
        done.set()
