"""The queues and the worker groups that serve them, as data (architecture.md §6).

A queue is `<kind>.<lane>`. Each group runs as its own process, so that a thread that waits for a model never keeps a
write waiting.
"""

from dataclasses import dataclass

INTERACTIVE = "interactive"
BULK = "bulk"
LANES = (INTERACTIVE, BULK)
KINDS = ("write", "read", "extract", "link", "embed", "import")

IN_FLIGHT = {INTERACTIVE: 16, BULK: 4}
"""Wake-ups in Redis at once, per tenant and queue; a setting may say otherwise."""


@dataclass(frozen=True, slots=True)
class Group:
    """One kind of worker process: its queues, its threads, and how much the OS should put it behind others."""

    name: str
    queues: tuple[str, ...]
    threads: int
    niceness: int = 0


GROUPS = {
    group.name: group
    for group in (
        Group("fast", ("write.interactive", "embed.interactive"), threads=8),
        Group("model", ("read.interactive", "extract.interactive", "link.interactive"), threads=64),
        Group("bulk", ("write.bulk", "embed.bulk", "import.bulk"), threads=4, niceness=10),
        Group("background", ("extract.bulk", "link.bulk"), threads=32),
    )
}

QUEUES = tuple(queue for group in GROUPS.values() for queue in group.queues)
"""Every queue there is. No `read.bulk` and no `import.interactive`: reads have someone waiting, imports never have."""


def queue_name(kind: str, lane: str) -> str:
    """The queue of a kind and lane; ValueError when there is none."""
    name = f"{kind}.{lane}"
    if name not in QUEUES:
        raise ValueError(f"no queue {name!r}; there are {', '.join(QUEUES)}")
    return name


def lane_of(queue: str) -> str:
    """`interactive` or `bulk`: the part after the dot."""
    return queue.rpartition(".")[2]
