"""What a worker or the relay counts, and the small HTTP server that shows it (queue-facts.md C1).

Labels are bounded: queues that are not known are counted as `other`, and no label is ever a tenant or a job. Every
child exists from the start, so that a missing series means a broken scrape and not "nothing happened yet".
"""

import json
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from core.settings import SettingsError
from workers.queues import QUEUES

_log = logging.getLogger(__name__)

OUTCOMES = ("succeeded", "failed", "dead", "cancelled", "deferred", "waiting")
SWEEP_REASONS = (
    "lease-lost", "dead", "deadline", "resend", "due", "children-ended", "children-open", "pruned",
)  # fmt: skip
"""What sql/functions/relay.sql answers."""
OTHER = "other"
WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 900)
RUN_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300, 600)
SOCKET_SECONDS = 10.0


class WorkerMetrics:
    """Counters of one process, in `registry`. Every method is cheap and may be called by any thread."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        queues: Iterable[str] = QUEUES,
        pool_waiting: Callable[[], int] | None = None,
    ) -> None:
        """`pool_waiting`: how many callers wait for a database connection at this moment (`Database.waiting`)."""
        self._queues = frozenset(queues)
        self._jobs = Counter(
            "muniment_jobs", "Attempts that ended, by how.", ("queue", "outcome"), registry=registry
        )  # fmt: skip
        self._wait = Histogram(
            "muniment_job_wait_seconds", "From ready to claimed.", ("queue",), registry=registry, buckets=WAIT_BUCKETS
        )
        self._run = Histogram(
            "muniment_job_run_seconds", "From claimed to ended.", ("queue",), registry=registry, buckets=RUN_BUCKETS
        )
        self._retries = Counter(
            "muniment_retries", "Attempts that failed and are tried again.", ("queue",), registry=registry
        )
        self._lost = Counter(
            "muniment_lease_lost", "Work discarded because its lease was lost.", ("queue",), registry=registry
        )
        self._swept = Counter(
            "muniment_swept", "Rows whose clock ran out, by what was done.", ("queue", "reason"), registry=registry
        )
        self._sent = Counter("muniment_wakeups_sent", "Wake-ups sent by the relay.", ("queue",), registry=registry)
        self._resent = Counter(
            "muniment_redelivered", "Wake-ups that nobody answered, sent again.", ("queue",), registry=registry
        )
        waiting = Gauge("muniment_pool_waiting", "Callers waiting for a database connection.", registry=registry)
        waiting.set_function(pool_waiting or (lambda: 0))
        for queue in (*sorted(self._queues), OTHER):
            self._start(queue)

    def _start(self, queue: str) -> None:
        for outcome in (*OUTCOMES, OTHER):
            self._jobs.labels(queue, outcome)
        for reason in (*SWEEP_REASONS, OTHER):
            self._swept.labels(queue, reason)
        for metric in (self._wait, self._run, self._retries, self._lost, self._sent, self._resent):
            metric.labels(queue)

    def _queue(self, queue: str) -> str:
        return queue if queue in self._queues else OTHER

    def finished(self, queue: str, outcome: str, wait_s: float, run_s: float) -> None:
        """An attempt ended. `wait_s`: seconds from ready to claimed; `run_s`: from claimed to ended."""
        name = self._queue(queue)
        self._jobs.labels(name, outcome if outcome in OUTCOMES else OTHER).inc()
        self._wait.labels(name).observe(max(wait_s, 0.0))
        self._run.labels(name).observe(max(run_s, 0.0))

    def retried(self, queue: str) -> None:
        """An attempt failed and the job is parked for another one."""
        self._retries.labels(self._queue(queue)).inc()

    def lease_lost(self, queue: str) -> None:
        """Work was discarded: somebody else may hold the job by now."""
        self._lost.labels(self._queue(queue)).inc()

    def swept(self, queue: str, reason: str) -> None:
        """The sweep moved a row; `reason` is the sweep's own word."""
        self._swept.labels(self._queue(queue), reason if reason in SWEEP_REASONS else OTHER).inc()

    def sent(self, queue: str, n: int) -> None:
        """`n` wake-ups went to Redis."""
        self._sent.labels(self._queue(queue)).inc(n)

    def resent(self, queue: str) -> None:
        """A wake-up had not been answered in time and is owed again."""
        self._resent.labels(self._queue(queue)).inc()


class MetricsServer:
    """`/metrics`, `/healthz` and `/readyz` on an address of their own; ends with `close` or its `with` block."""

    def __init__(self, bind: str, registry: CollectorRegistry, ready: Callable[[], list[str]]) -> None:
        host, port = parse_bind(bind)
        self._server = _Server((host, port), _Handler, _App(registry, ready), ":" in host)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_SETTINGS = "MUNIMENT_EXPORTER_BIND of an exporter, MUNIMENT_METRICS_BIND of other processes"


def serve_metrics(bind: str, registry: CollectorRegistry, ready: Callable[[], list[str]]) -> MetricsServer:
    """Starts serving. `ready` gives the reasons why the process is not ready: 503 with them, 200 when there are none.

    `/healthz` only says that the process answers. Raises SettingsError when `bind` is no address or is taken."""
    try:
        return MetricsServer(bind, registry, ready)
    except OSError as error:
        raise SettingsError(f"cannot listen on {bind} ({_SETTINGS}): {error.strerror or error}") from error


def parse_bind(bind: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or `:port` (every address); port 0 takes a free one. Raises SettingsError."""
    host, separator, port = bind.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{_SETTINGS}: {bind!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  the operator asked for every address


class _App:
    """The WSGI application."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], list[str]]) -> None:
        self._registry = registry
        self._ready = ready

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
        status, kind, body = self._answer(str(environ.get("PATH_INFO", "")))
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return iter([b"" if environ.get("REQUEST_METHOD") == "HEAD" else body])

    def _answer(self, path: str) -> tuple[str, str, bytes]:
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/healthz":
            return "200 OK", "application/json", b'{"status":"alive"}'
        if path == "/readyz":
            reasons = self._ready()
            body = json.dumps({"ready": not reasons, "reasons": reasons}).encode()
            return ("503 Service Unavailable" if reasons else "200 OK"), "application/json", body
        return "404 Not Found", "text/plain; charset=utf-8", b"there are /metrics, /healthz and /readyz\n"


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler], app: _App, ipv6: bool) -> None:
        self.address_family = socket.AF_INET6 if ipv6 else socket.AF_INET
        super().__init__(address, handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Without the name look-up of HTTPServer, which may hang where there is no DNS."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a scrape from %s ended early", client_address, exc_info=True)


class _Handler(WSGIRequestHandler):
    timeout = SOCKET_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not news."""


def queue_labels(queue: str) -> Sequence[str]:
    """The labels `queue`, `stage`, `lane` of one queue."""
    stage, _, lane = queue.partition(".")
    return queue, stage, lane
