"""The kinds of job that only the benchmarks register. They use the `embed` queue of the worker group `fast` (8 threads)."""

from uuid import UUID

from core.jobs.model import Done, Kind
from core.store.database import Tx
from workers.actors.work import Actor, Work

GROUP = "fast"
KINDS = {
    kind.name: kind
    for kind in (
        Kind("noop", "embed", 60),
        Kind("noop-batch", "embed", 60, batch=32),
        Kind("counter", "embed", 60),
    )
}
COUNTERS = """
create table if not exists bench_counters (tenant_id uuid, job_id uuid, effects integer not null default 0, worker text);
create index if not exists bench_counters_job on bench_counters (tenant_id, job_id);
grant all on bench_counters to muniment_app;
"""


def noop(work: Work) -> Done:
    return Done({"id": str(work.claim.job_id)})


def counter(work: Work) -> Done:
    """Its effect is one row; two rows for a job mean that it was done twice."""
    tenant_id, job_id = work.claim.tenant_id, work.claim.job_id
    return Done({"id": str(job_id)}, effects=lambda tx: _count(tx, tenant_id, job_id))


def _count(tx: Tx, tenant_id: UUID, job_id: UUID) -> None:
    connection = tx._connection  # the benchmark's own table: the product has no statement for it
    connection.execute(
        b"insert into bench_counters (tenant_id, job_id, effects) values (%s, %s, 1)", (tenant_id, job_id)
    )


ACTORS: dict[str, Actor] = {"noop": noop, "noop-batch": noop, "counter": counter}
