"""Many threads, one round trip: whoever is first does the work of all who wait."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Step = TypeVar("Step", bound="Combined")


class Combined:
    """One step of a batch. Whoever runs the batch sets `done`, after `error` or a result of its own."""

    done: bool = False
    error: Exception | None = None


class Combiner(Generic[Step]):
    """`do` returns when its step is done. A lone caller waits for nobody; under load a batch is what came meanwhile."""

    def __init__(self, run: Callable[[Sequence[Step]], None], most: int) -> None:
        """`run` does a batch of at most `most` steps; what it raises becomes the error of those that are not done."""
        self._run = run
        self._most = most
        self._waiting: deque[Step] = deque()
        self._turn = threading.Lock()

    def do(self, step: Step) -> Step:
        """Raises the step's error."""
        self._waiting.append(step)
        while not step.done:
            with self._turn:
                if not step.done:
                    self._lead()
        if step.error is not None:
            raise step.error
        return step

    def _lead(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        try:
            self._run(batch)
        except Exception as error:
            for step in batch:
                if not step.done:
                    # An exception belongs to one thread: each gets its own.
                    step.error = type(error)(*error.args)
                    step.error.__cause__ = error
        finally:
            for step in batch:
                step.done = True
