"""Opening an archive, whatever its format: the one door for callers."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from core.archives import chatgpt
from core.archives.container import Container, File
from core.archives.diagnosis import no_conversation
from core.archives.foreign import label
from core.archives.model import Conversation, Skipped
from core.archives.splitter import BadItem, BrokenArray, array_items
from core.errors import InvalidRequest

_LOOKED_AT = 100  # entries, before a file counts as something else


class Archive:
    """An opened archive. `format` is also the `source` of its conversations.

    Iterating reads it from the start, one conversation in memory at a time, and gives everything in it once: as a
    Conversation, or as Skipped with the reason. It ends with InvalidRequest when the archive breaks off, and when
    nothing in it could be imported: an import of no message is never a success.
    """

    format = chatgpt.SOURCE

    def __init__(self, container: Container, files: list[File]) -> None:
        self._container = container
        self._files = files

    def __iter__(self) -> Iterator[Conversation | Skipped]:
        seen: set[str] = set()
        reasons: Counter[str] = Counter()
        for found in self._everything():
            if isinstance(found, Conversation) and found.id not in seen:
                seen.add(found.id)
                yield found
                continue
            skipped = found if isinstance(found, Skipped) else _repeated(found)
            reasons[skipped.reason] += 1
            yield skipped
        if not seen:
            raise InvalidRequest(f"The archive holds no message that can be imported ({_told(reasons)}).")

    def _everything(self) -> Iterator[Conversation | Skipped]:
        wanted = set(self._files)
        for file in self._container.files:
            if file not in wanted:
                yield Skipped("file", label(file.name), "it is not a file of conversations")
        for file in self._files:
            with self._container.open(file) as stream:
                for item in array_items(stream):
                    where = f"{label(file.name)}, entry {item.index + 1}"
                    if isinstance(item, BadItem):
                        yield Skipped("conversation", where, item.reason)
                    else:
                        yield from chatgpt.conversation(item.value, where)


def open_archive(stream: BinaryIO, filename: str | None = None) -> Archive:
    """The archive in `stream` (seekable, buffered, kept open by the caller while the archive is in use).

    The format is told by the content; `filename` only names a bare file in reports. Raises InvalidRequest for anything
    else, with what it is and what is supported, and for a zip that is damaged, encrypted or unpacks beyond the bounds.
    """
    container = Container(stream, filename or "the uploaded file")
    files = _files_of_conversations(container)
    container.check(files)
    if not any(_holds_conversations(container, file) for file in files):
        raise no_conversation(container, files, _LOOKED_AT)
    return Archive(container, files)


def _files_of_conversations(container: Container) -> list[File]:
    if not container.zipped:
        return list(container.files)
    ordered = [(order, file) for file in container.files if (order := chatgpt.file_order(file.name)) is not None]
    return [file for _, file in sorted(ordered, key=lambda pair: (pair[0], pair[1].name))]


def _holds_conversations(container: Container, file: File) -> bool:
    with container.open(file) as stream:
        first = islice(array_items(stream), _LOOKED_AT)
        try:
            return any(not isinstance(item, BadItem) and chatgpt.recognises(item.value) for item in first)
        except BrokenArray:
            return False


def _repeated(conversation: Conversation) -> Skipped:
    return Skipped("conversation", f"conversation {label(conversation.id)}", "its id came before in this archive")


def _told(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(10)) or "it is empty"
