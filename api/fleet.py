"""What operators see of the queues and of who works on them: the same by HTTP and on the command line."""

from dataclasses import asdict
from typing import Any

from pydantic.alias_generators import to_camel

from core.clock import rfc3339
from core.jobs.backlog import backlog
from core.settings import Settings
from core.store.database import Row, Tx
from workers.queues import QUEUES


def fleet(tx: Tx, settings: Settings) -> dict[str, Any]:
    """`{queues, processes}`: the backlog of every queue that a worker group serves, by name (`QueueBacklog`), and the
    processes that have reported lately. Needs the relay's or the owner's role."""
    queues = {entry.queue: entry for entry in backlog(tx, settings.inflight_interactive, settings.inflight_bulk)}
    return {
        "queues": [_camel(asdict(queues[name])) for name in sorted(QUEUES)],
        "processes": [_process(row) for row in tx.rows("processes")],
    }


def _process(row: Row) -> dict[str, Any]:
    shown = {**row, "process_id": str(row["process_id"])}
    for name in ("started_at", "seen_at"):
        shown[name] = rfc3339(row[name])
    return _camel(shown)


def _camel(row: Row) -> dict[str, Any]:
    return {to_camel(name): value for name, value in row.items()}
