"""The items of one huge JSON array, one at a time.

Only the array's own brackets, commas and strings are looked at here; each item is parsed alone, by `json`. So memory is
bounded by the largest item, an oversized item can be passed over, and a broken one costs only itself. Between two items
nothing has to be known but where the first of them ended: the reading can be taken up there, by another process too.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

MAX_ITEM_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 128
CHUNK_BYTES = 256 * 1024
FIRST_BYTES = 4 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
# Each matches as far as nothing happens: over text without brackets, and over whole strings.
_IN_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_IN_ITEM = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_IN_ARRAY = re.compile(rb'(?:[^"{}\[\],]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)


class BrokenArray(Exception):
    """The stream is not one JSON array from its first byte to its last; what was lost cannot be counted."""


@dataclass(frozen=True, slots=True)
class Item:
    """`value`: the parsed item. `index` counts from 0; `end`: at which byte the comma or bracket behind it is."""

    index: int
    value: object
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BadItem:
    """An item that cannot be had, and why."""

    index: int
    reason: str
    end: int = field(default=0, compare=False)


def array_items(
    stream: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES, max_item_bytes: int = MAX_ITEM_BYTES
) -> Iterator[Item | BadItem]:
    """Every item of the array in `stream`, in order. UTF-8 (a BOM is passed over), surrogates as CESU-8 allowed.

    `stream.read(n)` must give fewer than n bytes only at the end. Raises BrokenArray after the last good item.
    """
    scan = _Scan(max_item_bytes)
    head = stream.read(len(_BOM))
    data = head.removeprefix(_BOM)
    scan.at = len(head) - len(data)
    yield from _rest(scan, data or stream.read(chunk_bytes), stream, chunk_bytes)


def first_items(stream: BinaryIO, most: int) -> Iterator[Item | BadItem]:
    """The first of `array_items`: at most so many, and none that begins beyond FIRST_BYTES. Raises BrokenArray."""
    for item in islice(array_items(stream), most):
        yield item
        if item.end >= FIRST_BYTES:
            return


def more_items(
    stream: BinaryIO, index: int, end: int, *, chunk_bytes: int = CHUNK_BYTES, max_item_bytes: int = MAX_ITEM_BYTES
) -> Iterator[Item | BadItem]:
    """What `array_items` gives behind an item whose end was `end`, and whose place was `index - 1`. `stream` stands there.

    Raises BrokenArray, also when no item ends there."""
    scan = _Scan(max_item_bytes)
    behind = stream.read(1)
    if behind not in (b",", b"]"):
        raise BrokenArray(f"it has changed since its first {index} items were read")
    scan.go_on(index, end + 1, closed=behind == b"]")
    yield from _rest(scan, stream.read(chunk_bytes), stream, chunk_bytes)


def _rest(scan: "_Scan", data: bytes, stream: BinaryIO, chunk_bytes: int) -> Iterator[Item | BadItem]:
    while data:
        yield from scan.feed(data)
        scan.at += len(data)
        data = stream.read(chunk_bytes)
    scan.finish()


class _Scan:
    """Where the scan stands between two chunks: inside how many brackets, inside a string or not."""

    def __init__(self, max_item_bytes: int) -> None:
        self._limit = max_item_bytes
        self._depth = 0  # 1: between the items of the array
        self._string = False
        self._escape = False  # the byte before was a backslash
        self._closed = False
        self._buffer = bytearray()
        self._over = ""  # why the present item is passed over
        self._index = 0
        self.at = 0  # of the next chunk in the stream

    def go_on(self, index: int, at: int, *, closed: bool) -> None:
        """Stand behind item `index - 1`, at byte `at`."""
        self._index, self.at = index, at
        self._depth, self._closed = (0, True) if closed else (1, False)

    def feed(self, data: bytes) -> Iterator[Item | BadItem]:
        start = 0 if self._depth else self._enter(data)
        at = start
        while self._depth and (token := self._next(data, at)) >= 0:
            at = token + 1
            if not self._ends_item(data[token]):
                continue
            self._keep(data[start:token])
            if self._depth or self._buffer.strip(_SPACE) or self._over or self._index:
                yield self._item(self.at + token)
            start = at
        if self._depth:
            self._keep(data[start:])
        elif self._closed and data[start:].strip(_SPACE):
            raise BrokenArray("something follows the end of the array")

    def finish(self) -> None:
        if self._depth:
            raise BrokenArray(f"it breaks off in entry {self._index + 1}")
        if not self._closed:
            raise BrokenArray("it is empty")

    def _enter(self, data: bytes) -> int:
        """The position after the opening bracket; the end of `data` when that has not come yet."""
        rest = data.lstrip(_SPACE)
        if self._closed or not rest:
            return 0 if self._closed else len(data)
        if rest[:1] != b"[":
            raise BrokenArray("it is not a JSON array")
        self._depth = 1
        return len(data) - len(rest) + 1

    def _next(self, data: bytes, at: int) -> int:
        """The position of the next bracket, or comma between items; -1 when `data` has none."""
        while at < len(data):
            if self._string:
                at = self._leave_string(data, at)
                continue
            at = _end(_IN_ARRAY if self._depth == 1 else _IN_ITEM, data, at)
            if data[at : at + 1] != b'"':
                return at if at < len(data) else -1
            self._string = True  # one that does not end in `data`
            at += 1
        return -1

    def _leave_string(self, data: bytes, at: int) -> int:
        """The position after the string's end, or the end of `data`."""
        at = _end(_IN_STRING, data, at + 1 if self._escape else at)
        self._escape = data[at : at + 1] == b"\\"  # the last byte: the pattern takes every other backslash
        self._string = data[at : at + 1] != b'"'
        return at + 1

    def _ends_item(self, token: int) -> bool:
        if token == ord(","):
            return True
        if token in b"{[":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                self._over = f"nested deeper than {MAX_DEPTH} levels"
            return False
        self._depth -= 1
        if self._depth == 0 and token != ord("]"):
            raise BrokenArray(f"a bracket does not match in entry {self._index + 1}")
        self._closed = self._depth == 0
        return self._closed

    def _keep(self, data: bytes) -> None:
        if len(self._buffer) + len(data) > self._limit:
            self._over = self._over or f"larger than {self._limit} bytes"
        if self._over:
            self._buffer.clear()
        else:
            self._buffer += data

    def _item(self, end: int) -> Item | BadItem:
        index, raw, over = self._index, self._buffer, self._over
        self._index, self._buffer, self._over = index + 1, bytearray(), ""
        if over:
            return BadItem(index, over, end)
        try:
            return Item(index, json.loads(raw.decode("utf-8", "surrogatepass")), end)
        except UnicodeDecodeError:
            return BadItem(index, "not UTF-8", end)
        except (ValueError, RecursionError):  # ValueError: also a number of thousands of digits
            return BadItem(index, "not valid JSON", end)


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at
