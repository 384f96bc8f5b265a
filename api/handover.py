"""What other threads have finished, brought to the event loop: many at once, since each call from outside wakes it."""

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Handover:
    """For one event loop. The thread that accepts jobs ends a whole group of them together."""

    def __init__(self) -> None:
        self._finished: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()
        self._due = False

    def result_of(self, future: Future[T]) -> asyncio.Future[T]:
        """To be awaited in the loop. Giving up cancels nothing in the other thread."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()

        def finished(future: Future[T]) -> None:
            self._finished.append((future, waiting))
            if not self._due:  # else a call is under way that will see this one: it takes back `_due` before it looks
                self._due = True
                with suppress(RuntimeError):  # the loop has ended, and all who waited with it
                    loop.call_soon_threadsafe(self._deliver)

        future.add_done_callback(finished)
        return waiting

    def _deliver(self) -> None:
        self._due = False
        while self._finished:
            future, waiting = self._finished.popleft()
            if waiting.done():
                continue
            error = future.exception()
            if error is None:
                waiting.set_result(future.result())
            else:
                waiting.set_exception(error)
