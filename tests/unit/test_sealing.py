"""How segments of an index grow together (core/search/lexical/sealing.py)."""

import random

import pytest

from core.search.lexical.postings import DOCUMENTS
from core.search.lexical.sealing import TIERS, to_merge
from core.search.lexical.writing import SEAL

RECORDS = 400_000
MOST_SEGMENTS = 24
"""That a cold search must look a term up in: full ones, and up to eight small ones of each tier."""


@pytest.mark.parametrize("seed", range(6))
def test_segments_stay_few_and_no_record_is_written_often(seed: int) -> None:
    """Sealed by single writes, by bulk writes, or by both."""
    chance = random.Random(seed)
    largest = (SEAL, 3 * SEAL, DOCUMENTS)[seed % 3]
    segments: list[tuple[int, int]] = []  # records, and how often they were written at most
    while sum(size for size, _ in segments) < RECORDS:
        segments.append((chance.randint(SEAL, largest), 2))  # packed, then sealed
        while (some := to_merge([size for size, _ in segments])) is not None:
            merged = segments[some]
            assert len(merged) > 1
            size = sum(size for size, _ in merged)
            assert size <= DOCUMENTS
            segments[some] = [(size, 1 + max(times for _, times in merged))]
        assert len(segments) <= MOST_SEGMENTS
        assert max(times for _, times in segments) <= 4
    assert any(size >= TIERS[-1] for size, _ in segments)
