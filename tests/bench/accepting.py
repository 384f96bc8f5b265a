"""Accepted single writes of 32 clients on one API process, against a route that validates the same and stores nothing."""

from contextlib import ExitStack
from statistics import median

from tests.bench.http_client import Load, concurrent, request
from tests.bench.report import Bar, Report, Sample, percentile
from tests.bench.stage import Stage, body, headers

CLIENTS = 32
REQUESTS = 4_000
ROUNDS = 3
TEXT = "We moved the release to Thursday; Ana signs it off. " * 11


def run(stage: Stage, report: Report, *, requests: int = REQUESTS, rounds: int = ROUNDS) -> None:
    stage.clear()
    _, secret = stage.tenant("accepting")
    empty: list[Load] = []
    quiet: list[Load] = []
    draining: list[Load] = []
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        write = request("POST", "/v1/stores/journal/memories", headers=headers(secret), body=body({"text": TEXT}))
        check = request("POST", "/v1/stores/journal/validated", headers=headers(secret), body=body({"text": TEXT}))

        def take(message: bytes, found: list[Load]) -> None:
            load = concurrent(port, lambda _: message, clients=CLIENTS, requests=requests)
            if set(load.statuses) != {202}:
                raise RuntimeError(f"answers: {dict(load.statuses)}")
            found.append(load)

        warm: list[Load] = []
        for message in (check, write):
            take(message, warm)
        for _ in range(rounds):
            take(check, empty)
            take(write, quiet)
        if stage.left() != requests * (rounds + 1):
            raise RuntimeError(f"{stage.left()} of {requests * (rounds + 1)} accepted jobs are there")
        stack.enter_context(stage.relay())
        stack.enter_context(stage.worker("fast"))
        for _ in range(rounds):
            take(write, draining)
    rate = {name: median(load.per_second for load in loads) for name, loads in
            (("empty", empty), ("quiet", quiet), ("draining", draining))}  # fmt: skip
    latencies = {name: [ms for load in loads for ms in load.latencies_ms] for name, loads in
                 (("empty", empty), ("quiet", quiet), ("draining", draining))}  # fmt: skip
    for name, settings in (
        ("empty", "authenticates and validates, stores nothing"),
        ("quiet", "durable accept, no worker"),
        ("draining", "durable accept, group fast draining the backlog"),
    ):
        report.samples.append(Sample(f"accept, {name}", "ms", f"{CLIENTS} clients; {settings}", latencies[name]))
        report.samples.append(Sample(f"accept rate, {name}", "req/s", settings, [rate[name]]))
    report.bars += [
        Bar("accept_ratio", "accepted writes/s ÷ the empty route's", rate["quiet"] / rate["empty"], "≥", 0.4),
        Bar("accept_p95_ms", "accept p95, no worker", percentile(latencies["quiet"], 0.95), "≤", 50, "ms"),
        Bar("accept_draining_ratio", "the same with workers draining", rate["draining"] / rate["empty"], "≥", 0.3),
        Bar("accept_draining_p95_ms", "its p95", percentile(latencies["draining"], 0.95), "≤", 80, "ms"),
    ]
