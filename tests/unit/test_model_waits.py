"""How long a call waits: backoff, patience, and what an endpoint asks for (memory-agent.md §10.1)."""

from datetime import UTC, datetime

import pytest

from core.models.waits import Patience, backoff, retry_after

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_the_backoff_doubles_to_sixteen_seconds_with_half_of_it_by_chance() -> None:
    assert [backoff(k, 1.0) for k in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 16, 16]
    assert [backoff(k, 0.0) for k in (1, 2, 6, 100)] == [0.25, 0.5, 8, 8]


def test_patience_admits_four_waits_in_thirty_seconds() -> None:
    patience = Patience()
    assert [patience.wait(1.0, 0.0) for _ in range(5)] == [2, 4, 8, 16, None]
    assert patience.seconds == 30
    short = Patience()
    assert [short.wait(0.0, 0.0) for _ in range(5)] == [1.5, 3, 6, 12, None]  # a fifth would make 46.5


def test_patience_waits_the_backoff_when_that_is_longer() -> None:
    patience = Patience()
    assert patience.wait(1.0, 16.0) == 16
    assert patience.wait(1.0, 1.0) == 4
    assert patience.wait(1.0, 16.0) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None), ({"retry-after": "7"}, 7), ({"retry-after": " 7 "}, 7), ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None), ({"retry-after": "soon"}, None), ({"retry-after": ""}, None),
        ({"retry-after": "٣"}, None), ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30), ({"retry-after": "Sun, 01 Mar 2026 11:59:00 GMT"}, None),
        ({"retry-after": "Sun, 01 Mar 2026 13:00:10 +0100"}, 10), ({"retry-after": "Sun, 99 Mar 2026 13:00:10 GMT"}, None),
        ({"retry-after-ms": "1500"}, 1.5), ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9), ({"retry-after-ms": "0", "retry-after": "9"}, 9),
    ],
)  # fmt: skip
def test_the_wait_that_an_endpoint_names(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
