"""Ctrl-C, SIGTERM and a closed terminal, for the commands that run the local stack."""

import signal
from types import FrameType, TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered: the first signal raises KeyboardInterrupt, all others are let pass, so that the end is not disturbed.

    With `gentle` set, no signal raises: look at `asked`. Nor does one that comes while the main thread logs, as it does in
    a hook of each fork: the exception would be lost there, and a lock of `logging` be kept from all threads for ever. So call
    `check` between steps.
    """

    def __init__(self) -> None:
        self.asked = False
        self.gentle = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises KeyboardInterrupt when somebody has asked, were it lost before."""
        if self.asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number
        first, self.asked = not self.asked, True
        if first and not self.gentle and not _in_logging(frame):
            raise KeyboardInterrupt


def _in_logging(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "logging":
            return True
        frame = frame.f_back
    return False
