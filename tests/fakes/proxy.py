"""A TCP proxy before a test's server that can go silent, as a network does when the other side is gone without a word."""

import selectors
import socket
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from workers.embedded.ports import LOOPBACK


@dataclass
class _Link:
    client: socket.socket
    server: socket.socket
    frozen: bool = False

    def close(self) -> None:
        self.client.close()
        self.server.close()


class Proxy:
    """`with Proxy(port) as proxy:`, then connect to `proxy.port`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: dict[int, _Link] = {}
        self._cut: list[_Link] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._listener.close()
        for link in (*self._links.values(), *self._cut):
            link.close()

    def freeze(self) -> int:
        """From now on nothing passes on any connection there is; new ones work. How many there are."""
        with self._lock:
            for link in self._links.values():
                link.frozen = True
            return len(self._links)

    def cut(self, client_port: int) -> None:
        """Ends the connection of the client with this port."""
        with self._lock:
            link = self._links.pop(client_port)
            self._cut.append(link)
            # Not closed: the thread may be about to wait for it, and another socket may be given its number.
            for side in (link.client, link.server):
                side.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                links = [link for link in self._links.values() if not link.frozen]
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ, None)
                for link in links:
                    selector.register(link.client, selectors.EVENT_READ, (link, link.client, link.server))
                    selector.register(link.server, selectors.EVENT_READ, (link, link.server, link.client))
                for key, _ in selector.select(0.02):
                    if key.data is None:
                        self._accept()
                    else:
                        self._pass(*key.data)

    def _accept(self) -> None:
        client, (_, port) = self._listener.accept()
        with self._lock:
            self._links[port] = _Link(client, socket.create_connection((LOOPBACK, self._target)))

    def _pass(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            if link.frozen or source.fileno() < 0:
                return
            try:
                data = source.recv(65_536)
                target.sendall(data)
            except OSError:
                data = b""
            if not data:
                link.close()
                self._links = {port: kept for port, kept in self._links.items() if kept is not link}
