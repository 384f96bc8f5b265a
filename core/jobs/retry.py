"""When a transient failure is tried again (contract.md, Jobs): 1, 5, 30, 120 s × U[0.5, 1]."""

import random

DELAYS = (1.0, 5.0, 30.0, 120.0)


def delay(attempt: int, uniform: float | None = None) -> float:
    """Seconds to wait after failed attempt number `attempt` (from 1); the last delay holds for all later ones."""
    share = random.uniform(0.5, 1.0) if uniform is None else uniform  # noqa: S311  jitter, not a secret
    return DELAYS[min(attempt, len(DELAYS)) - 1] * share
