"""The clock, the dice and the sleep of model calls, injected so that a test can run hours in a moment."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from core import clock

SLICE_SECONDS = 0.2
"""How often a wait asks whether it is still wanted."""


def doze(seconds: float, stop: Callable[[], bool]) -> None:
    """Sleeps, or returns early once `stop` says True."""
    until = clock.monotonic() + seconds
    never = threading.Event()
    while not stop() and (left := until - clock.monotonic()) > 0:
        never.wait(min(left, SLICE_SECONDS))


@dataclass(frozen=True, slots=True)
class Timing:
    """`sleep(seconds, stop)` is called once with a whole wait; `random()` is uniform in [0, 1)."""

    monotonic: Callable[[], float] = clock.monotonic
    now: Callable[[], datetime] = clock.now
    sleep: Callable[[float, Callable[[], bool]], None] = doze
    random: Callable[[], float] = random.random
