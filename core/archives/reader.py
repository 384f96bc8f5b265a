"""Opening an archive, whatever its format: the one door for callers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from core.archives import chatgpt
from core.archives.container import Container, File
from core.archives.diagnosis import no_conversation
from core.archives.foreign import label
from core.archives.model import Conversation, Skipped
from core.archives.place import Place, digest
from core.archives.splitter import BadItem, BrokenArray, array_items, first_items, more_items
from core.errors import InvalidRequest

NO_CONVERSATIONS = "it is not a file of conversations"
_LOOKED_AT = 100  # entries, before a file counts as something else


@dataclass(frozen=True, slots=True)
class Entry:
    """What one entry of the archive gave, and the place behind it."""

    found: tuple[Conversation | Skipped, ...]
    after: Place


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
        for entry in self.entries(Place(), set(), {}):
            yield from entry.found

    def entries(self, place: Place, seen: set[bytes], left: Mapping[str, int]) -> Iterator[Entry]:
        """The same, entry by entry, from `place` on. What was found before it: `seen`, the digests (core/archives/place.py)
        of its conversations, to which new ones are added, and `left`, how much was left out for each reason.

        Nothing before `place` is parsed. Its bytes are not even read when the upload is the bare file; those of a zip's
        member are unpacked (`Container.open`)."""
        reasons = Counter(left)
        for entry in self._everything(place):
            found = tuple(self._once(item, seen) for item in entry.found)
            reasons.update(item.reason for item in found if isinstance(item, Skipped))
            yield Entry(found, entry.after)
        if not seen:
            raise InvalidRequest(f"The archive holds no message that can be imported ({_told(reasons)}).")

    @staticmethod
    def _once(item: Conversation | Skipped, seen: set[bytes]) -> Conversation | Skipped:
        if isinstance(item, Skipped):
            return item
        known = digest(item.id)
        if known in seen:
            return _repeated(item)
        seen.add(known)
        return item

    def _everything(self, place: Place) -> Iterator[Entry]:
        if place.items == 0:
            wanted = set(self._files)
            others = [file for file in self._container.files if file not in wanted]
            place = Place(items=len(others))
            if others:
                yield Entry(tuple(Skipped("file", label(file.name), NO_CONVERSATIONS) for file in others), place)
        for number in range(place.file, len(self._files)):
            if number != place.file:
                place = Place(number, items=place.items)
            for entry in self._of_file(self._files[number], place):
                place = entry.after
                yield entry

    def _of_file(self, file: File, place: Place) -> Iterator[Entry]:
        with self._container.open(file, place.offset) as stream:
            items = place.items
            for item in more_items(stream, place.entries, place.offset) if place.entries else array_items(stream):
                where = f"{label(file.name)}, entry {item.index + 1}"
                if isinstance(item, BadItem):
                    found: tuple[Conversation | Skipped, ...] = (Skipped("conversation", where, item.reason),)
                else:
                    found = tuple(chatgpt.conversation(item.value, where))
                items += len(found)
                yield Entry(found, Place(place.file, item.index + 1, item.end, items))


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
        first = first_items(stream, _LOOKED_AT)
        try:
            return any(not isinstance(item, BadItem) and chatgpt.recognises(item.value) for item in first)
        except BrokenArray:
            return False


def _repeated(conversation: Conversation) -> Skipped:
    return Skipped("conversation", f"conversation {label(conversation.id)}", "its id came before in this archive")


def _told(reasons: Counter[str]) -> str:
    return "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(10)) or "it is empty"
