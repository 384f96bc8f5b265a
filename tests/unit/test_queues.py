"""The table of queues and groups (architecture.md §6)."""

from collections import Counter

import pytest

from workers.queues import BULK, GROUPS, IN_FLIGHT, INTERACTIVE, KINDS, LANES, QUEUES, lane_of, queue_name


def test_every_queue_is_served_by_exactly_one_group() -> None:
    assert set(Counter(QUEUES).values()) == {1}
    assert {queue.split(".")[0] for queue in QUEUES} == set(KINDS)
    assert {lane_of(queue) for queue in QUEUES} == set(LANES) == set(IN_FLIGHT)


def test_no_group_serves_both_lanes() -> None:
    """A bulk job can then never hold a thread that an interactive one waits for."""
    for group in GROUPS.values():
        assert len({lane_of(queue) for queue in group.queues}) == 1, group.name


def test_names() -> None:
    assert queue_name("write", INTERACTIVE) == "write.interactive"
    assert queue_name("import", BULK) == "import.bulk"
    with pytest.raises(ValueError, match=r"no queue 'read\.bulk'"):
        queue_name("read", BULK)
