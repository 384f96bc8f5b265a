"""Round trips: HTTP → job row → queue → worker → fenced commit → answer, against Dramatiq without any of the truth."""

from contextlib import ExitStack

from tests.bench.http_client import request, sequential
from tests.bench.noop import GROUP
from tests.bench.peers.bare import Bare
from tests.bench.peers.wakeup import WakeUp
from tests.bench.report import Bar, Report, Sample, percentile
from tests.bench.stage import Stage, headers

ROUNDS = 4
REQUESTS = 150
WARM = 40
IDLE = 15


def run(stage: Stage, report: Report, *, requests: int = REQUESTS) -> None:
    """Each round asks every side in turn, so that what else the machine does meets them alike."""
    stage.clear()
    _, secret = stage.tenant("latency")
    ours: list[float] = []
    bare: list[float] = []
    wakeup: list[float] = []
    direct: list[float] = []
    idle: list[float] = []
    with ExitStack() as stack:
        port = stack.enter_context(stage.api()).port
        stack.enter_context(stage.relay())
        stack.enter_context(stage.worker(GROUP))
        peers = {"bare": Bare(stage.valkey.url), "wakeup": WakeUp(stage.valkey.url)}
        for peer in peers.values():
            stack.callback(peer.close)
        asks = (
            (ours, request("POST", "/v1/stores/journal/noop", headers=headers(secret), body=b"{}"), None),
            (bare, request("POST", "/bare/noop"), peers["bare"]),
            (wakeup, request("POST", "/wakeup/noop"), peers["wakeup"]),
            (direct, request("POST", "/direct/noop"), None),
        )
        for _ in range(ROUNDS):
            for side, message, peer in asks:
                # A peer's worker runs only while it is asked: its polling would slow the others down.
                if peer is not None:
                    peer.start()
                sequential(port, lambda _, message=message: message, requests=WARM)
                load = sequential(port, lambda _, message=message: message, requests=requests)
                if peer is not None:
                    peer.stop()
                if set(load.statuses) != {200}:
                    raise RuntimeError(f"answers: {dict(load.statuses)}")
                side.extend(load.latencies_ms)
        message = asks[0][1]
        idle += sequential(port, lambda _: message, requests=IDLE, pause=1.0).latencies_ms
    for name, settings, values in (
        ("round trip, Muniment", "1 client, 1 process × 8 threads", ours),
        ("round trip, bare Dramatiq", Bare.settings, bare),
        ("round trip, Dramatiq + wake-up", WakeUp.settings, wakeup),
        ("round trip, no queue", "1 client", direct),
        ("round trip after 1 s of idleness, Muniment", "1 client", idle),
    ):
        report.samples.append(Sample(name, "ms", settings, values))
    p50 = {name: percentile(values, 0.5) for name, values in (("ours", ours), ("bare", bare), ("wakeup", wakeup))}
    report.bars += [
        Bar("round_trip_ratio", "round trip p50 ÷ bare Dramatiq's", p50["ours"] / p50["bare"], "≤", 0.6),
        Bar(
            "round_trip_vs_wakeup",
            "round trip p50 ÷ Dramatiq's with our wake-up",
            p50["ours"] / p50["wakeup"],
            "≤",
            3.0,
        ),
        Bar("idle_round_trip_ms", "round trip p50 after 1 s of idleness", percentile(idle, 0.5), "≤", 8.0, "ms"),
    ]
