"""Follows several logs at once."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

CHUNK_BYTES = 64 * 1024
"""The most that one look takes from one log, so that a noisy process does not silence the others."""


class LogTail:
    """What is written to the logs from now on, as (name, line). Look at it a few times a second."""

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._logs = dict(logs)
        self._at = {name: _size(path) for name, path in self._logs.items()}
        self._rest = dict.fromkeys(self._logs, b"")

    def lines(self) -> Iterator[tuple[str, str]]:
        """The whole lines that have come since the last look."""
        for name, path in self._logs.items():
            if _size(path) <= self._at[name]:
                continue
            with path.open("rb") as file:
                file.seek(self._at[name])
                new = file.read(CHUNK_BYTES)
            self._at[name] += len(new)
            *whole, self._rest[name] = (self._rest[name] + new).split(b"\n")
            for line in whole:
                yield name, line.decode("utf-8", "replace")


def last_lines(path: Path, count: int) -> list[str]:
    """The end of a log, as far as `CHUNK_BYTES` reach."""
    if not _size(path):
        return []
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - CHUNK_BYTES))
        return file.read().decode("utf-8", "replace").splitlines()[-count:]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
