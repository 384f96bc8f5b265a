"""Round after round of full dispatches serves every tenant the same, however many are ready (architecture.md §6)."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from workers.relay import last_served


def dispatch(tenants: list[UUID], after: UUID, limit: int) -> list[UUID]:
    """What sql/functions/relay.sql picks when every tenant has more ready than can be sent: turns in rotated order."""
    order = sorted(tenants, key=lambda t: (t <= after, t))
    return [order[n % len(order)] for n in range(limit)]


@given(st.sets(st.integers(1, 2**128 - 1), min_size=1, max_size=60), st.integers(1, 50), st.integers(1, 40))
def test_no_tenant_is_served_twice_more_than_another(numbers: set[int], limit: int, rounds: int) -> None:
    tenants = [UUID(int=number) for number in numbers]
    served: Counter[UUID] = Counter(dict.fromkeys(tenants, 0))
    after = UUID(int=0)
    for _ in range(rounds):
        sent = dispatch(tenants, after, limit)
        served.update(sent)
        after = last_served(after, sent)
    assert max(served.values()) - min(served.values()) <= 1
