"""Text as the original system measures it: its lengths, its white space, its cuts.

units = UTF-16 code units (JavaScript's string length), points = code points, bytes = UTF-8. Nothing here changes a
character: no normalisation, no case folding. Only NUL and lone surrogates are refused, since neither Postgres nor UTF-8
can hold them.
"""

import re

from core.errors import InvalidRequest

SPACES = "\t\n\v\f\r \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000\ufeff"
"""JavaScript's white space (memory-agent.md §1.2): not Python's, which has U+001C–1F and U+0085 but not U+FEFF."""

# Single spaces, by far the most common white space, are already what they should become.
_RUN = re.compile(f" [{SPACES}]+|[{SPACES.replace(' ', '')}][{SPACES}]*")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def units(s: str) -> int:
    """UTF-16 code units of `s`."""
    return len(s) if s.isascii() else len(s) + len(_ASTRAL.findall(s))


def points(s: str) -> int:
    """Code points of `s`."""
    return len(s)


def size(s: str) -> int:
    """UTF-8 bytes of `s`, which holds no lone surrogate."""
    return len(s) if s.isascii() else len(s.encode())


def is_bmp(s: str) -> bool:
    """Whether each code point of `s` is one unit, so that indexes into it count units as well as points."""
    return s.isascii() or _ASTRAL.search(s) is None


def trim(s: str) -> str:
    """`s` without white space at its ends (JavaScript's `trim`)."""
    return s.strip(SPACES)


def collapse_spaces(s: str) -> str:
    """`s` with every run of white space made one space, and none at its ends."""
    return _RUN.sub(" ", s).strip(SPACES)


def cut_units(s: str, limit: int) -> str:
    """The longest beginning of `s` of at most `limit` units that does not end inside a surrogate pair."""
    head = s[:limit]  # a point is at least one unit, so the answer lies within
    if is_bmp(head):
        return head
    kept = head.encode("utf-16-le", "surrogatepass")[: 2 * limit]
    if 0xD8 <= kept[-1] <= 0xDB:  # the first half of a pair
        kept = kept[:-2]
    return kept.decode("utf-16-le", "surrogatepass")


def text_fault(s: str) -> str | None:
    """What keeps `s` from being stored, as a sentence to the client; None for good text."""
    if "\0" in s:
        return f"holds a NUL character (U+0000) at character {s.index(chr(0))}; remove it"
    if s.isascii():
        return None
    try:
        s.encode()
    except UnicodeEncodeError as error:
        lone = ord(s[error.start])
        return f"holds a lone surrogate (U+{lone:04X}) at character {error.start}; send whole Unicode characters"
    return None


def check_text(s: str, field: str) -> None:
    """Raise InvalidRequest naming `field` when `s` holds NUL or a lone surrogate."""
    fault = text_fault(s)
    if fault is not None:
        raise InvalidRequest.field(field, fault)
