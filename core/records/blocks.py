"""A text as blocks of at most 600 points (memory-agent.md §1.3)."""

import re
from typing import NamedTuple

from core.records.limits import BLOCK_POINTS
from core.text import SPACES, size

# Greedy, so that it ends after the last white space of the window it is given.
_THROUGH_SPACE = re.compile(f".*[{SPACES}]", re.DOTALL)


class Span(NamedTuple):
    """A piece of a text; `start` and `end` are byte offsets in the whole."""

    start: int
    end: int
    text: str


def split(text: str) -> list[Span]:
    """Blocks that join to exactly `text`; no block is empty.

    Each ends after the last white space within its 600 points, so the space stays with the word before it; a stretch of
    600 points without any is cut there.
    """
    spans: list[Span] = []
    at, start, total = 0, 0, len(text)
    while at < total:
        cut = min(at + BLOCK_POINTS, total)
        if cut < total:
            match = _THROUGH_SPACE.match(text, at, cut)
            cut = match.end() if match else cut
        piece = text[at:cut]
        end = start + size(piece)
        spans.append(Span(start, end, piece))
        at, start = cut, end
    return spans
