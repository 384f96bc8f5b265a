"""Which documents hold which terms, as arrays and as the bytes they are stored in.

Documents are local numbers below 65,536: those of one segment. Everything is little-endian.

    a term's postings   documents uint16 × n, frequencies uint8 × n or uint32 × n, the frequencies' width (one byte)
    a packed segment    width, terms, postings, bytes of vocabulary (uint32 × 4); ends of the terms in the vocabulary
                        (uint32 × terms); ends of their postings (uint32 × terms); documents uint16; frequencies;
                        vocabulary (UTF-8, in code-point order)
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Postings: TypeAlias = tuple[NDArray[np.uint16], NDArray[np.uint8] | NDArray[np.uint32]]
"""Documents, ascending, and the term's frequency in each."""

DOCUMENTS = 1 << 16
KEY_BYTES = 200
_DOCUMENT_BITS = 16
_FREQUENCY_BITS = 24
_HEADER = 16


def key(term: str) -> bytes:
    """What a term is stored as: itself, or, where an index entry could be too large, its hash."""
    raw = term.encode()
    return raw if len(raw) <= KEY_BYTES else b"\x01" + sha256(raw).hexdigest().encode()


def encode(documents: NDArray[np.uint16], frequencies: NDArray[np.uint32]) -> bytes:
    if int(frequencies.max()) < 256:
        return documents.tobytes() + frequencies.astype("u1").tobytes() + b"\x01"
    return documents.tobytes() + frequencies.astype("<u4").tobytes() + b"\x04"


def decode(blob: bytes) -> Postings:
    width = blob[-1]
    count = (len(blob) - 1) // (2 + width)
    documents = np.frombuffer(blob, "<u2", count)
    return documents, np.frombuffer(blob, "u1" if width == 1 else "<u4", count, 2 * count)


class Packed:
    """A packed segment's bytes, for looking terms up without decoding the others."""

    __slots__ = ("_blob", "_documents", "_frequencies", "_postings", "_terms", "_vocabulary")

    def __init__(self, blob: bytes) -> None:
        width, terms, postings, _ = (int(n) for n in np.frombuffer(blob, "<u4", 4))
        self._blob = blob
        self._terms = memoryview(blob)[_HEADER : _HEADER + 4 * terms].cast("I")
        at = _HEADER + 4 * terms
        self._postings = memoryview(blob)[at : at + 4 * terms].cast("I")
        at += 4 * terms
        self._documents = np.frombuffer(blob, "<u2", postings, at)
        at += 2 * postings
        self._frequencies = np.frombuffer(blob, "u1" if width == 1 else "<u4", postings, at)
        self._vocabulary = at + width * postings

    @property
    def size(self) -> int:
        return len(self._blob)

    def find(self, term: bytes) -> Postings | None:
        """The postings of a key."""
        terms, blob, base = self._terms, self._blob, self._vocabulary
        low, high = 0, len(terms)
        while low < high:
            middle = (low + high) >> 1
            if blob[base + (terms[middle - 1] if middle else 0) : base + terms[middle]] < term:
                low = middle + 1
            else:
                high = middle
        if low == len(terms) or blob[base + (terms[low - 1] if low else 0) : base + terms[low]] != term:
            return None
        span = slice(self._postings[low - 1] if low else 0, self._postings[low])
        return self._documents[span], self._frequencies[span]

    def inverted(self) -> "Inverted":
        starts = [self._vocabulary, *(self._vocabulary + end for end in self._terms)]
        vocabulary = [self._blob[start:end] for start, end in pairwise(starts)]
        return Inverted(
            vocabulary, np.array(self._postings, np.int64), self._documents, self._frequencies.astype(np.uint32)
        )


@dataclass(frozen=True, slots=True)
class Inverted:
    """Postings of many terms: `ends[i]` is where those of `vocabulary[i]` end. The vocabulary is in byte order."""

    vocabulary: list[bytes]
    ends: Ints
    documents: NDArray[np.uint16]
    frequencies: NDArray[np.uint32]

    @staticmethod
    def of(texts: Sequence[Sequence[str]]) -> "Inverted":
        """Of the documents 0, 1, … with these terms, at most 65,536."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        codes: defaultdict[str, int] = defaultdict()
        codes.default_factory = codes.__len__  # numbers terms in the order of their first look-up
        total = int(lengths.sum())
        terms = np.fromiter(map(codes.__getitem__, chain.from_iterable(texts)), np.int64, total)
        vocabulary, ranks = _sorted([key(term) for term in codes])
        entries = ranks[terms] << _DOCUMENT_BITS | np.repeat(np.arange(len(texts)), lengths)
        entries.sort()
        starts = _starts(entries)
        frequencies = np.diff(starts, append=total)
        entries = entries[starts]
        return _assemble(vocabulary, entries >> _DOCUMENT_BITS, entries & (DOCUMENTS - 1), frequencies)

    @staticmethod
    def joined(parts: Iterable[tuple["Inverted", int]]) -> "Inverted":
        """Of parts, each with the number of its document 0 in the whole."""
        codes: defaultdict[bytes, int] = defaultdict()
        codes.default_factory = codes.__len__
        pieces: list[Ints] = []
        for part, offset in parts:
            own = np.fromiter(map(codes.__getitem__, part.vocabulary), np.int64, len(part.vocabulary))
            terms = np.repeat(own, np.diff(part.ends, prepend=0))
            documents = part.documents.astype(np.int64) + offset
            low = documents << _FREQUENCY_BITS | part.frequencies.astype(np.int64)
            pieces.append(terms << (_DOCUMENT_BITS + _FREQUENCY_BITS) | low)
        vocabulary, ranks = _sorted(list(codes))
        entries = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
        low_bits = _DOCUMENT_BITS + _FREQUENCY_BITS
        entries = ranks[entries >> low_bits] << low_bits | entries & ((1 << low_bits) - 1)
        entries.sort()
        documents = entries >> _FREQUENCY_BITS & (DOCUMENTS - 1)
        return _assemble(vocabulary, entries >> low_bits, documents, entries & ((1 << _FREQUENCY_BITS) - 1))

    def without(self, documents: Ints) -> "Inverted":
        """Terms that only these documents hold are gone too."""
        kept = ~np.isin(self.documents, documents)
        terms = np.repeat(np.arange(len(self.vocabulary)), np.diff(self.ends, prepend=0))[kept]
        used, terms = np.unique(terms, return_inverse=True)
        places: list[int] = used.tolist()
        return _assemble([self.vocabulary[n] for n in places], terms, self.documents[kept], self.frequencies[kept])

    def packed(self) -> bytes:
        words = b"".join(self.vocabulary)
        ends = np.cumsum(np.fromiter(map(len, self.vocabulary), np.int64, len(self.vocabulary)))
        width = 1 if not len(self.frequencies) or int(self.frequencies.max()) < 256 else 4
        header = np.array([width, len(self.vocabulary), len(self.documents), len(words)], "<u4")
        return b"".join(
            (
                header.tobytes(),
                ends.astype("<u4").tobytes(),
                self.ends.astype("<u4").tobytes(),
                self.documents.tobytes(),
                self.frequencies.astype("u1" if width == 1 else "<u4").tobytes(),
                words,
            )
        )

    def rows(self) -> Iterator[tuple[str, bytes]]:
        """(term, postings) in the order of the terms."""
        start = 0
        narrow = self.frequencies.astype("u1")
        wide = np.flatnonzero(self.frequencies > 255)
        large = {int(n) for n in np.searchsorted(self.ends, wide, "right")}
        documents, frequencies = memoryview(self.documents.tobytes()), memoryview(narrow.tobytes())
        for n, end in enumerate(self.ends.tolist()):
            if n in large:
                blob = encode(self.documents[start:end], self.frequencies[start:end])
            else:
                blob = b"".join((documents[2 * start : 2 * end], frequencies[start:end], b"\x01"))
            yield self.vocabulary[n].decode(), blob
            start = end


def _sorted(terms: list[bytes]) -> tuple[list[bytes], Ints]:
    """The terms in order, and each one's place in it."""
    order = sorted(range(len(terms)), key=terms.__getitem__)
    ranks = np.empty(len(terms), np.int64)
    ranks[order] = np.arange(len(terms))
    return [terms[n] for n in order], ranks


def _starts(values: Ints) -> Ints:
    """Where each run of equal values begins."""
    return np.flatnonzero(np.diff(values, prepend=values[0] - 1)) if len(values) else np.empty(0, np.int64)


def _assemble(
    vocabulary: list[bytes], terms: Ints, documents: NDArray[np.integer[Any]], frequencies: NDArray[np.integer[Any]]
) -> Inverted:
    ends = np.searchsorted(terms, np.arange(len(vocabulary)), "right").astype(np.int64)
    return Inverted(vocabulary, ends, documents.astype("<u2"), frequencies.astype("<u4"))
