"""The notices ship as they were given."""

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GIVEN = {
    "LICENSE": "394fb1da3fc345bea2c1f7c7c4c4b2d1da79dfa5d708e9660d5952bd3de1e279",
    "LICENSE.memory-agent": "01e62f320f1880f8879c19774fc170e3f1f98e506c03eb4412748680ff00aa8b",
    "LICENSE.v8": "78040cfd9a833516e5280b9abc162bffedd44058ff1ca890366365aeff9014e7",
}


@pytest.mark.parametrize("name", GIVEN)
def test_notice_is_verbatim(name: str) -> None:
    assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == GIVEN[name]
