"""No-op jobs that Postgres holds the truth of, drained by one process of 8 threads, against the peers."""

from collections.abc import Callable
from statistics import median
from uuid import UUID

from core import ids
from core.jobs.model import JobRequest
from core.settings import load
from core.store.database import Database
from tests.bench.noop import GROUP, KINDS
from tests.bench.peers import Process, measure
from tests.bench.peers.bare import Bare
from tests.bench.peers.celery_peer import CeleryPrefork
from tests.bench.peers.procrastinate_peer import Procrastinate
from tests.bench.report import Bar, Report, Sample
from tests.bench.stage import Stage
from workers.submit import Submitter

TENANTS = 50
ROUNDS = 3


class Ours:
    """Muniment as a peer: jobs accepted by the product's own submitter, the relay running, default settings."""

    def __init__(self, stage: Stage, kind: str, tenants: list[UUID]) -> None:
        self.name = f"Muniment ({kind})"
        self.settings = f"{len(tenants)} tenants, 1 process × 8 threads, relay running"
        self._stage = stage
        self._kind = KINDS[kind]
        self._tenants = tenants
        self._process: Process | None = None

    def enqueue(self, count: int) -> None:
        self._stage.clear()
        settings = load({}, database_url=self._stage.dsn("app"), redis_url=self._stage.valkey.url)
        with Database(self._stage.dsn("app"), name="bench", size=2) as db:
            submitter = Submitter(db, self._stage.valkey.url, settings)
            submitter.open()
            futures = [
                submitter.accept(
                    JobRequest(self._tenants[n % len(self._tenants)], ids.uuid7(), self._kind, "interactive", "{}")
                )
                for n in range(count)
            ]
            for future in futures:
                future.result(60)
            submitter.close()
        with self._stage.admin() as admin:
            admin.execute(b"analyze jobs, job_payloads")
        self._admin = self._stage.admin()
        self._counting = self._admin.__enter__()

    def left(self) -> int:
        row = self._counting.execute(b"select count(*) from jobs where finished_at is null").fetchone()
        assert row is not None
        return int(row[0])

    def start(self) -> None:
        self._process = Process(["-m", "tests.bench.worker", GROUP], self._stage.environment("app"))

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        self._admin.__exit__(None, None, None)


def run(stage: Stage, report: Report, *, jobs: int = 5_000, rounds: int = ROUNDS, peers: bool = True) -> None:
    tenants = [stage.tenant(f"throughput-{n}-{ids.uuid7().hex[-6:]}")[0] for n in range(TENANTS)]
    sides: dict[str, tuple[str, Callable[[], float]]] = {}

    def add(key: str, peer: Ours | Bare | CeleryPrefork | Procrastinate, count: int) -> None:
        sides[key] = (f"{peer.name}: {peer.settings}", lambda: measure(peer, count).per_second)

    add("ours", Ours(stage, "noop", tenants), jobs)
    add("batched", Ours(stage, "noop-batch", tenants), jobs)
    closing: list[Bare | CeleryPrefork | Procrastinate] = []
    if peers:
        others = {
            "bare": Bare(stage.valkey.url),
            "celery": CeleryPrefork(stage.valkey.url.rpartition("/")[0] + "/1"),
            "procrastinate": Procrastinate(stage.postgres.superuser_dsn),
        }
        for key, peer in others.items():
            add(key, peer, jobs)
            closing.append(peer)
    rates: dict[str, list[float]] = {key: [] for key in sides}
    try:
        for _ in range(rounds):
            for key, (_, take) in sides.items():
                if key in ("ours", "batched"):
                    with stage.relay():
                        rates[key].append(take())
                else:
                    rates[key].append(take())
    finally:
        for peer in closing:
            peer.close()
    for key, (name, _) in sides.items():
        report.samples.append(Sample(f"throughput, {key}", "jobs/s", name, rates[key]))
    if not peers:
        return
    rate = {key: median(values) for key, values in rates.items()}
    report.bars += [
        Bar("throughput_vs_celery", "jobs/s ÷ Celery prefork -c 2", rate["ours"] / rate["celery"], "≥", 1.3),
        Bar(
            "throughput_vs_procrastinate", "jobs/s ÷ Procrastinate × 8", rate["ours"] / rate["procrastinate"], "≥", 2.5
        ),
        Bar("throughput_vs_dramatiq", "jobs/s ÷ bare Dramatiq", rate["ours"] / rate["bare"], "≥", 0.7),
        Bar(
            "throughput_batched_vs_dramatiq", "batched jobs/s ÷ bare Dramatiq", rate["batched"] / rate["bare"], "≥", 1.3
        ),
    ]
