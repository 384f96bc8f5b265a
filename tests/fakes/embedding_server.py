"""An embedding server on loopback that speaks as Ollama and as OpenAI, and fails on demand."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np


def vector(text: str, dimensions: int) -> list[float]:
    """A vector of its own for each text, not of length 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return [float(x) for x in np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)]


@dataclass
class EmbeddingServer:
    """`faults` are used up one a request: `429`, `500`, `302`, `cut`, `fewer`, `garbage`, `doubled`, `nan`, `ragged`.

    `asked` holds each request's path and body; `dimensions` may change between requests; `order` "reversed" makes the
    OpenAI reply list its entries backwards."""

    url: str = ""
    dimensions: int = 8
    order: str = "given"
    delay: float = 0.0
    faults: list[str] = field(default_factory=list[str])
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def texts(self) -> list[str]:
        return [text for _, body in self.asked for text in body["input"]]


class _Http(ThreadingHTTPServer):
    daemon_threads = False
    state: EmbeddingServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # head and body in one packet

    def do_POST(self) -> None:
        assert isinstance(self.server, _Http)
        self.state = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.state.asked.append((self.path, body))
        self.state.headers.append({name.lower(): value for name, value in self.headers.items()})
        time.sleep(self.state.delay)
        self._answer(body["input"], self.state.faults.pop(0) if self.state.faults else "")

    def _answer(self, texts: list[str], fault: str) -> None:
        if fault.isdigit():
            more = {"Retry-After": "7"} if fault == "429" else {"Location": "/elsewhere"}
            self._send(int(fault), b'{"error": "no"}', more)
            return
        rows: list[Any] = [vector(text, self.state.dimensions) for text in texts]
        if fault == "fewer":
            rows.pop()
        elif fault == "nan":
            rows[0][0] = float("nan")
        elif fault == "ragged":
            rows[0] = rows[0][:-1]
        reply = b"<html>" if fault == "garbage" else json.dumps(self._shape(rows, fault)).encode()
        self._send(200, reply, {}, cut=fault == "cut")

    def _shape(self, rows: list[Any], fault: str) -> dict[str, Any]:
        if self.path == "/api/embed":
            return {"model": "fake", "embeddings": rows}
        data = [{"index": n, "embedding": row} for n, row in enumerate(rows)]
        if fault == "doubled":
            data[-1]["index"] = 0
        return {"object": "list", "data": data[::-1] if self.state.order == "reversed" else data}

    def _send(self, status: int, body: bytes, more: dict[str, str], *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def embedding_server(**settings: Any) -> Iterator[EmbeddingServer]:
    http = _Http(("127.0.0.1", 0), _Handler)
    http.state = EmbeddingServer(url=f"http://127.0.0.1:{http.server_address[1]}", **settings)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield http.state
    finally:
        http.shutdown()
        http.server_close()
        thread.join(5)
