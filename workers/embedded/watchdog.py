"""Where the kernel has no death signal (macOS): signal a server when its owner is gone.

Run as a program of its own, as the owner's child: `watchdog.py OWNER SERVER SIGNAL`. The owner kills it before it
reaps the server, so SERVER never names a stranger.
"""

import contextlib
import os
import sys
import time

POLL_S = 0.2


def watch(owner: int, server: int, signal_number: int) -> None:
    while os.getppid() == owner:
        time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal_number)


if __name__ == "__main__":
    watch(*(int(argument) for argument in sys.argv[1:4]))
