"""The kinds of job that exist now, with their queues and deadlines (contract.md, Jobs; architecture.md §6)."""

from core.jobs.model import Kind
from core.settings import Settings

HOUR = 3600
EMBED_SECONDS = 300
"""Of one run, which stops by itself long before (workers/actors/embedding.py)."""


def kinds(settings: Settings) -> dict[str, Kind]:
    """Every kind by name. A new kind is one line here and one handler in `workers/actors`."""
    keep = int(settings.keep_payload_hours * HOUR)
    keep_read = int(settings.keep_read_hours * HOUR)
    write = settings.write_deadline_seconds
    return {
        kind.name: kind
        for kind in (
            Kind("write", "write", write, keep_seconds=keep),
            Kind("conversation", "write", write, keep_seconds=keep),
            Kind("batch", "write", write, keep_seconds=keep),
            Kind("erase", "write", settings.import_deadline_seconds, keep_seconds=keep),
            Kind("read", "read", settings.read_deadline_seconds, from_accept=True, keep_seconds=keep_read),
            Kind("search", "read", settings.read_deadline_seconds, from_accept=True, keep_seconds=keep_read),
            Kind("embed", "embed", EMBED_SECONDS, keep_seconds=HOUR),
            Kind("index", "embed", HOUR, keep_seconds=HOUR),
            Kind("import", "import", settings.import_deadline_seconds, keep_seconds=keep),
        )
    }
