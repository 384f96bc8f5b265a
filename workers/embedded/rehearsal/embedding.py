"""Vectors by hashed bags of words: texts that share rare words are near one another."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from core.search.analysis import analyse

DIMENSIONS = 256


def vectors(texts: Sequence[str], dimensions: int = DIMENSIONS) -> list[list[float]]:
    """One vector of length 1 a text; of zeros for a text without words."""
    return [_vector(text, dimensions) for text in texts]


def _vector(text: str, dimensions: int) -> list[float]:
    found = np.zeros(dimensions)
    for word, times in Counter(analyse(text, 2)).items():
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        sign = 1.0 if digest[0] & 1 else -1.0
        found[int.from_bytes(digest[1:]) % dimensions] += sign * (1.0 + np.log(times))
    length = float(np.linalg.norm(found))
    return [float(number) for number in (found / length if length else found)]
