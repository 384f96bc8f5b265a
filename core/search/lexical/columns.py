"""What is known of a run of records besides their terms: arrays, and the bytes they are stored in.

A column of numbers is stored in the narrowest of 1, 2, 4 or 8 bytes that holds them all; ids are padded with NUL to the
longest. A record that was erased keeps its number: its scope is ERASED, its length 0, its id empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.postings import Ints

ERASED = 0
EVERYONE = 1
"""Scopes are stored as code + 1."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A record to be indexed. `ordinal` is the block's place in its document; `scope` is a code of lexical_scopes; `piece`:
    of a long message (core/search/analysis.py)."""

    number: int
    id: str
    revision: int
    ordinal: int
    scope: int
    piece: int
    terms: Sequence[str]


@dataclass(frozen=True, slots=True)
class Columns:
    """The records from number `first` on. `lengths`: terms with repeats."""

    first: int
    lengths: Ints
    scopes: Ints
    ordinals: Ints
    pieces: Ints
    revisions: Ints
    ids: NDArray[np.bytes_]

    @property
    def end(self) -> int:
        return self.first + len(self.lengths)

    @staticmethod
    def of(records: Sequence[Indexed], first: int, end: int, revision: int) -> "Columns":
        """Of records in order of their numbers, all within [first, end); missing numbers are erased ones. `revision`: what
        stands in for theirs until the first record's."""
        count, width = end - first, max((len(record.id) for record in records), default=1)
        lengths, scopes, ordinals, pieces, revisions = (np.zeros(count, np.int64) for _ in range(5))
        found = Columns(first, lengths, scopes, ordinals, pieces, revisions, np.zeros(count, f"S{width}"))
        places = [record.number - first for record in records]
        found.lengths[places] = [len(record.terms) for record in records]
        found.scopes[places] = [record.scope + EVERYONE for record in records]
        found.ordinals[places] = [record.ordinal for record in records]
        found.pieces[places] = [record.piece for record in records]
        found.revisions[:] = revision
        found.revisions[places] = [record.revision for record in records]
        np.maximum.accumulate(found.revisions, out=found.revisions)
        found.ids[places] = [record.id.encode() for record in records]
        return found

    @staticmethod
    def joined(parts: Iterable["Columns"]) -> "Columns":
        """Of neighbours, in order."""
        pieces = list(parts)
        assert all(one.end == other.first for one, other in pairwise(pieces))
        return Columns(
            pieces[0].first,
            np.concatenate([part.lengths for part in pieces]),
            np.concatenate([part.scopes for part in pieces]),
            np.concatenate([part.ordinals for part in pieces]),
            np.concatenate([part.pieces for part in pieces]),
            np.concatenate([part.revisions for part in pieces]),
            np.concatenate([part.ids for part in pieces]),
        )

    def without(self, places: Ints) -> "Columns":
        """The records at these places erased."""
        lengths, scopes, ids = self.lengths.copy(), self.scopes.copy(), self.ids.copy()
        lengths[places], scopes[places], ids[places] = 0, ERASED, b""
        return Columns(self.first, lengths, scopes, self.ordinals, self.pieces, self.revisions, ids)

    def stored(self) -> dict[str, Any]:
        """The values of a row of lexical_segments."""
        first = int(self.revisions[0])
        return {
            "first": self.first,
            "end": self.end,
            "first_revision": first,
            "last_revision": int(self.revisions[-1]),
            "lengths": narrow(self.lengths),
            "scopes": narrow(self.scopes),
            "ordinals": narrow(self.ordinals),
            "pieces": narrow(self.pieces),
            "revisions": narrow(self.revisions - first),
            "ids": self.ids.tobytes(),
        }

    @staticmethod
    def load(row: Mapping[str, Any]) -> "Columns":
        first: int = row["first_number"]
        count: int = row["end_number"] - first
        return Columns(
            first,
            widen(row["lengths"], count),
            widen(row["scopes"], count),
            widen(row["ordinals"], count),
            widen(row["pieces"], count),
            widen(row["revisions"], count) + row["first_revision"],
            identities(row["ids"], count),
        )


def narrow(values: Ints) -> bytes:
    """Numbers from 0 as bytes."""
    largest = int(values.max())
    width = next(width for width in (1, 2, 4, 8) if largest < 1 << 8 * width)
    return values.astype(f"<u{width}").tobytes()


def widen(blob: bytes, count: int) -> Ints:
    return raw(blob, count).astype(np.int64)


def raw(blob: bytes, count: int) -> NDArray[np.unsignedinteger[Any]]:
    return np.frombuffer(blob, f"<u{len(blob) // count}")


def identities(blob: bytes, count: int) -> NDArray[np.bytes_]:
    return np.frombuffer(blob, f"S{len(blob) // count}")
