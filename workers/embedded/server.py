"""What the two embedded servers share: one program over one folder on one loopback port."""

import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from workers.embedded import carriers
from workers.embedded.carriers import Carrier, Source
from workers.embedded.folder import ServerFolder
from workers.embedded.ports import start_on_free_port
from workers.embedded.process import Child


@dataclass(frozen=True, slots=True)
class Running:
    child: Child
    folder: ServerFolder
    port: int


class Server(ABC):
    """One server over `data_dir`, which is its own folder and keeps the data between starts.

    Start it from the main thread (see `process`). `port` None takes a free one at each start. `carrier` None takes the
    first installed one.
    """

    sources: ClassVar[Sequence[Source]]
    program: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    stop_s: ClassVar[float]

    def __init__(self, data_dir: Path, *, port: int | None, carrier: Carrier | None) -> None:
        self._data_dir = data_dir
        self._wanted_port = port
        self._carrier = carrier
        self._running: Running | None = None

    def start(self) -> None:
        """Return when the server answers. Raises CannotStart with what to do, or with the end of the log."""
        if self._running is not None:
            raise RuntimeError("already started")
        carrier = self._carrier or carriers.find(self.sources)
        folder = ServerFolder.prepare(self._data_dir, carrier.bin / self.program)

        def launch(port: int) -> Running:
            return Running(self._launch(folder, carrier, port), folder, port)

        self._running = launch(self._wanted_port) if self._wanted_port else start_on_free_port(launch)

    def stop(self) -> None:
        """End the server cleanly. Harmless when it is not running."""
        if self._running is not None:
            self._running.child.stop(self.stop_signal, self.stop_s)
            self._running = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it has, or will have: a server that is started again keeps its address."""
        if self._running is None and self._wanted_port is not None:
            return self._wanted_port
        return self.running.port

    @property
    def pid(self) -> int:
        return self.running.child.pid

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.child.poll() is None

    def tail(self) -> str:
        """The end of what it wrote to its log; empty for one that never ran."""
        return "" if self._running is None else self._running.child.tail()

    @property
    def log(self) -> Path:
        return self.running.folder.log

    @property
    def running(self) -> Running:
        """Raises RuntimeError unless started."""
        if self._running is None:
            raise RuntimeError("not started")
        return self._running

    @abstractmethod
    def _launch(self, folder: ServerFolder, carrier: Carrier, port: int) -> Child:
        """Make what the first start needs, start the program, wait until it answers. Raises CannotStart."""
