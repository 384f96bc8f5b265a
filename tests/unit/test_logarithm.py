"""Vectors of V8's Math.log: 500 doubles in hex with their logarithms, most of them arguments of an idf."""

import decimal
import struct
from pathlib import Path

import pytest

from core.logarithm import log

VECTORS = Path(__file__).parents[1] / "golden" / "logarithm.txt"


def vectors() -> list[tuple[float, float]]:
    def double(digits: str) -> float:
        return struct.unpack(">d", bytes.fromhex(digits))[0]

    pairs = [line.split() for line in VECTORS.read_text().splitlines()]
    return [(double(x), double(y)) for x, y in pairs]


def test_every_vector_to_the_last_bit() -> None:
    assert len(vectors()) == 500
    assert [x for x, y in vectors() if log(x) != y] == []


def test_the_vectors_tell_it_from_an_exact_logarithm() -> None:
    """The C library's is nearly always the rounded exact value: it must not pass the test above."""

    def exact(x: float) -> float:
        return float(context.ln(decimal.Decimal(x)))

    context = decimal.Context(prec=40)
    differing = sum(exact(x) != y for x, y in vectors())
    assert differing >= 25


def test_the_published_example() -> None:
    assert log(1 + (3 - 1 + 0.5) / (1 + 0.5)) == 0.9808292530117264


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, float("inf"), float("-inf"), float("nan"), 5e-324])
def test_outside_its_domain(x: float) -> None:
    with pytest.raises(ValueError, match="positive, normal"):
        log(x)
