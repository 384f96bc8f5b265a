"""A conversation as the chunks of text that the original system packs it into (memory-agent.md §1.2)."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from core.errors import TooLarge
from core.records import dates
from core.records.limits import CHUNK_UNITS, LINE_LEAST_UNITS, LINE_UNITS, TEXT_BYTES
from core.text import collapse_spaces, cut_units, is_bmp, size, units

_BETWEEN = "\n\n"
TOO_LARGE = "the packed conversation is over 4 MiB; split it"


class Turn(Protocol):
    """A message; `at` is RFC 3339 with an offset."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def at(self) -> str | None: ...


class Chunk(NamedTuple):
    """One chunk; `start` and `end` are its bytes in the packed text, `messages` the indexes it holds lines of."""

    text: str
    start: int
    end: int
    messages: tuple[int, ...]


class Packed(NamedTuple):
    """`text` is the chunks joined by a blank line. `heading` is without its colon, `first_at` the first timestamp."""

    text: str
    chunks: list[Chunk]
    heading: str
    first_at: datetime | None


def pack(messages: Sequence[Turn], session_id: str) -> Packed:
    """The packed text and its chunks. Raises TooLarge as soon as the text is over 4 MiB."""
    first_at = next((dates.parse(message.at) for message in messages if message.at is not None), None)
    heading = f"Conversation {session_id}"
    if first_at is not None:
        heading += f" on {dates.heading_date(first_at)}"
    chunks: list[Chunk] = []
    start = 0
    for lines, indexes in _groups(messages, units(heading)):
        text = f"{heading}:\n" + "\n".join(lines)
        end = start + size(text)
        if end > TEXT_BYTES:
            raise TooLarge(TOO_LARGE)
        chunks.append(Chunk(text, start, end, indexes))
        start = end + len(_BETWEEN)
    return Packed(_BETWEEN.join(chunk.text for chunk in chunks), chunks, heading, first_at)


def may_be_too_large(messages: Sequence[Turn], session_id: str) -> bool:
    """Whether `pack` could raise TooLarge: a bound without packing, so that only huge conversations pack twice."""
    heading = size(session_id) + 64
    total = 0
    for message in messages:
        line = len(message.role) * 4 + size(message.content) + 2
        total += line + (line // LINE_LEAST_UNITS + 1) * (heading + 1)
    return total > TEXT_BYTES


def _groups(messages: Sequence[Turn], heading_units: int) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    lines: list[str] = []
    indexes: list[int] = []
    used = heading_units - 1  # the first line has no line break before it
    for index, message in enumerate(messages):
        for line in _wrap(collapse_spaces(f"{message.role}: {message.content}")):
            length = units(line) + 1
            if lines and used + length > CHUNK_UNITS:
                yield lines, tuple(indexes)
                lines, indexes, used = [], [], heading_units - 1
            lines.append(line)
            used += length
            if not indexes or indexes[-1] != index:
                indexes.append(index)
    if lines:
        yield lines, tuple(indexes)


def _wrap(line: str) -> Iterator[str]:
    """Pieces of at most 540 units. White space in `line` is single spaces already. A surrogate pair is never cut."""
    bmp = is_bmp(line)
    at, total = 0, len(line)
    while total - at > LINE_UNITS or (not bmp and units(line[at:]) > LINE_UNITS):
        full = at + (LINE_UNITS if bmp else len(cut_units(line[at : at + LINE_UNITS], LINE_UNITS)))
        space = line.rfind(" ", at, full + 1)
        reach = space - at if bmp or space < 0 else units(line[at:space])
        cut = space if reach > LINE_LEAST_UNITS else full
        yield line[at:cut]
        at = cut
        if at < total and line[at] == " ":
            at += 1
    if at < total:
        yield line[at:]
