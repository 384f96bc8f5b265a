"""A place between two entries of an archive, from which its reading can be taken up without what came before."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Place:
    """`file`: which of the archive's files of conversations; `entries` of it have been read, the last of them ends at byte
    `offset` of the unpacked file. `items`: how many things the archive has given up to here, of all files."""

    file: int = 0
    entries: int = 0
    offset: int = 0
    items: int = 0

    @classmethod
    def load(cls, stored: Mapping[str, int] | None) -> "Place":
        """From the import's row; None: the start."""
        return cls() if stored is None else cls(**stored)

    def stored(self) -> dict[str, Any]:
        """What `load` reads."""
        return asdict(self)


def digest(conversation: str) -> bytes:
    """What is remembered of a conversation's id, to know it when it comes again."""
    return blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def digests(joined: Iterable[bytes]) -> set[bytes]:
    """Those in each of the byte strings, one behind the other there."""
    return {piece[at : at + DIGEST_BYTES] for piece in joined for at in range(0, len(piece), DIGEST_BYTES)}
