"""The benchmark's own arithmetic: a bar that cannot fail proves nothing."""

import io
import json
import socket
import threading
from itertools import chain, repeat
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.http_client import concurrent, request, sequential
from tests.bench.peers import drain
from tests.bench.report import Bar, Report, Sample, percentile


@pytest.mark.parametrize(
    ("value", "relation", "bar", "passed"),
    [(1, "≤", 1, True), (1.01, "≤", 1, False), (1, "≥", 1, True), (0.99, "≥", 1, False)],
)
def test_a_bar(value: float, relation: str, bar: float, passed: bool) -> None:
    assert Bar("key", "title", value, relation, bar).passed is passed  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("relation", ["≤", "≥"])
def test_a_figure_that_is_no_number_misses_its_bar(relation: str) -> None:
    assert not Bar("key", "title", float("nan"), relation, 1).passed  # pyright: ignore[reportArgumentType]


def test_percentiles() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile([7.0], 0.01)) == (3.0, 5.0, 7.0)
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


def test_a_report(tmp_path: Path) -> None:
    report = Report("Spine")
    assert report.exit_code == 1  # nothing shown is nothing proven
    report.samples.append(Sample("round trip", "ms", "8 threads", [1.0, 2.0, 3.0]))
    report.bars.append(Bar("ratio", "the ratio", 0.5, "≤", 0.6))
    assert report.exit_code == 0
    report.bars.append(Bar("other", "another", 0.5, "≥", 0.6))
    assert report.exit_code == 1
    report.write(tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (found["passed"], found["bars"]["ratio"]["passed"], found["bars"]["other"]["passed"]) == (False, True, False)
    assert (found["ratio"], found["other"]) == (0.5, 0.5)
    assert found["samples"][0]["p50"] == 2.0
    assert found["versions"]["dramatiq"]
    text = io.StringIO()
    report.show(Console(file=text, width=200))
    assert "Missed: other" in text.getvalue()


def test_draining_is_timed_between_90_and_10_per_cent_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = chain([0.0], (number * 1.0 for number in range(1, 100)))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    left = chain([100, 80, 40, 0], repeat(0))  # 90 left at 1.5 s, 10 left at 3.75 s
    found = drain(lambda: next(left), 100, timeout=50)
    assert found.seconds == pytest.approx(2.25)
    assert found.per_second == pytest.approx(80 / 2.25)


def test_draining_that_never_ends_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="7 of 10 tasks left"):
        drain(lambda: 7, 10, timeout=0.05)


def test_the_client_counts_every_answer() -> None:
    """Against a server that answers in two pieces."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]

        def serve(connection: socket.socket) -> None:
            with connection:
                while connection.recv(4096):
                    connection.sendall(b"HTTP/1.1 201 Created\r\nCONTENT-LENGTH: 5\r\n\r\nhe")
                    connection.sendall(b"llo")

        def accept() -> None:
            threads: list[threading.Thread] = []
            for _ in range(4):  # three at once, then one
                threads.append(threading.Thread(target=serve, args=(listener.accept()[0],)))
                threads[-1].start()
            for thread in threads:
                thread.join(10)

        server = threading.Thread(target=accept)
        server.start()
        message = request("POST", "/x", body=b"{}")
        many = concurrent(port, lambda number: message, clients=3, requests=31)
        few = sequential(port, lambda number: message, requests=4)
        server.join(10)
    assert (many.statuses, len(many.latencies_ms)) == ({201: 31}, 31)
    assert (few.statuses, len(few.latencies_ms)) == ({201: 4}, 4)
