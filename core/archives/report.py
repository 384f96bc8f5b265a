"""What an import has read and written so far; kept on its row, so that a run goes on where another stopped."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.archives.model import Conversation, Part, Skipped
from core.clock import rfc3339
from core.store.database import Row

EXAMPLES = 3
FAILURES = 20


@dataclass
class Sent:
    """A child that has not been counted yet: its documents' numbers of messages, its bytes, and how much of the upload had
    been read before it (`at`, bytes). Their ids are in its payload."""

    at: int
    size: int
    messages: list[int]


@dataclass
class Left:
    """What was left out for one reason; `examples` says where in the archive."""

    count: int = 0
    examples: list[str] = field(default_factory=list[str])


@dataclass
class Tally:
    """`read_all`: nothing is left to be read. `problem`: why the reading ended before the archive's end. `position`: how far
    the upload was read when a child was last sent, in bytes."""

    conversations: int = 0
    documents: int = 0
    messages: int = 0
    already_there: int = 0
    first_at: str | None = None
    last_at: str | None = None
    skipped: dict[str, Left] = field(default_factory=dict[str, Left])
    failed: int = 0
    failures: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    sent: dict[str, Sent] = field(default_factory=dict[str, Sent])
    position: int = 0
    read_all: bool = False
    problem: dict[str, Any] | None = None

    @classmethod
    def load(cls, stored: Mapping[str, Any] | None) -> "Tally":
        """From the row's `report`; None: nothing yet."""
        if stored is None:
            return cls()
        tally = cls(**stored)
        tally.skipped = {reason: Left(**left) for reason, left in stored["skipped"].items()}
        tally.sent = {child: Sent(**sent) for child, sent in stored["sent"].items()}
        return tally

    def stored(self) -> dict[str, Any]:
        """What `load` reads; shares its lists with this tally."""
        skipped = {reason: vars(left) for reason, left in self.skipped.items()}
        return {**vars(self), "skipped": skipped, "sent": {child: vars(sent) for child, sent in self.sent.items()}}

    def skip(self, skipped: Skipped) -> None:
        left = self.skipped.setdefault(skipped.reason, Left())
        left.count += 1
        if len(left.examples) < EXAMPLES:
            left.examples.append(skipped.where)

    def read(self, conversation: Conversation) -> None:
        self.conversations += 1
        times = [rfc3339(message.at) for message in conversation.messages if message.at is not None]
        if times:
            self.first_at = min(filter(None, (self.first_at, *times)))
            self.last_at = max(filter(None, (self.last_at, *times)))

    def send(self, child: str, parts: Sequence[Part], size: int) -> None:
        """Remembers a child that is about to be made, until it has ended."""
        self.sent[child] = Sent(self.position, size, [len(part.messages) for part in parts])

    def collect(self, rows: Collection[Row], names: Callable[[str], Sequence[str]]) -> bool:
        """Counts those children among `rows` (`import_children`) that have ended; whether there were any.

        A child that is not among them was deleted after its end: what it wrote is not known. `names` gives the document ids
        of a child, for those that failed."""
        found = {str(row["job_id"]): row for row in rows}
        ended = [child for child in self.sent if child not in found or found[child]["finished"]]
        for child in ended:
            sent = self.sent.pop(child)
            failed: list[tuple[int, str]] = []
            for n, (messages, problem) in enumerate(zip(sent.messages, _problems(found.get(child), sent), strict=True)):
                if problem is None:
                    self.documents += 1
                    self.messages += messages
                elif problem.get("type") == "/problems/document-exists":
                    self.already_there += 1
                else:
                    failed.append((n, str(problem.get("detail"))))
            self._fail(child, failed, names)
        return bool(ended)

    def _fail(self, child: str, failed: list[tuple[int, str]], names: Callable[[str], Sequence[str]]) -> None:
        self.failed += len(failed)
        if failed and len(self.failures) < FAILURES:
            documents = names(child)
            for n, error in failed[: FAILURES - len(self.failures)]:
                name = documents[n] if n < len(documents) else f"item {n} of job {child}"
                self.failures.append({"document": name, "error": error})

    def waiting_bytes(self) -> int:
        return sum(sent.size for sent in self.sent.values())

    def done_bytes(self) -> int:
        """How much of the upload has been dealt with, children included."""
        return min((sent.at for sent in self.sent.values()), default=self.position)

    def shown(self) -> dict[str, Any]:
        """`{conversations, documents, messages, alreadyThere, skipped: [{reason, count, examples}], failed: [{document,
        error}], failedDocuments, firstAt?, lastAt?}`.

        `conversations` were read; `documents` and their `messages` were written; documents `alreadyThere` came with an
        earlier import, or were erased since. Of those that failed at most 20 are listed; `failedDocuments` counts all."""
        report: dict[str, Any] = {
            "conversations": self.conversations,
            "documents": self.documents,
            "messages": self.messages,
            "alreadyThere": self.already_there,
            "skipped": [
                {"reason": reason, "count": left.count, "examples": left.examples}
                for reason, left in sorted(self.skipped.items(), key=lambda pair: -pair[1].count)
            ],
            "failed": self.failures,
            "failedDocuments": self.failed,
        }
        times = {"firstAt": self.first_at, "lastAt": self.last_at}
        return report | {name: at for name, at in times.items() if at is not None}


def _problems(row: Row | None, sent: Sent) -> Sequence[dict[str, Any] | None]:
    """The problem of each document of an ended child; None for one that was written."""
    if row is not None and row["state"] == "succeeded" and row["errors"] is not None:
        return row["errors"]
    lost: dict[str, Any] = {"detail": "its result is no longer kept"}
    if row is not None and row["error"] is not None:
        lost = row["error"]
    elif row is not None and row["state"] == "cancelled":
        lost = {"detail": "its job was cancelled"}
    return [lost] * len(sent.messages)
