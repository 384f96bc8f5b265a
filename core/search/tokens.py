"""The tokens of the frozen lexical ranking (memory-agent.md §2.1)."""

import re
from itertools import pairwise

_LATIN = re.compile(r"[a-z0-9]+(?:[-_:][a-z0-9]+)*")

# Script=Han of Unicode 17. Written out, so that ranks do not change with the Unicode tables of a Python version.
_HAN = re.compile(
    "["
    "\u2e80-\u2e99\u2e9b-\u2ef3\u2f00-\u2fd5\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufa6d\ufa70-\ufad9"
    "\U00016fe2-\U00016fe3\U00016ff0-\U00016ff6\U00020000-\U0002a6df\U0002a700-\U0002b81d\U0002b820-\U0002cead"
    "\U0002ceb0-\U0002ebe0\U0002ebf0-\U0002ee5d\U0002f800-\U0002fa1d\U00030000-\U0003134a\U00031350-\U00033479"
    "]+"
)


def tokens(text: str) -> list[str]:
    """All Latin and digit tokens of `text` in order, then its Han tokens, with repeats.

    Latin: runs of a-z and 0-9 of the lower-cased text, joined across single `-`, `_` and `:`. Han: the overlapping
    pairs of each run, or its only character; pairs of code points, also beyond U+FFFF. Nothing else yields tokens.
    """
    # str.lower and JavaScript's toLowerCase make a-z of the same characters: A-Z, U+0130 and U+212A (tested).
    found = _LATIN.findall(text.lower())
    if not text.isascii():
        for run in _HAN.findall(text):
            found += [run] if len(run) == 1 else map("".join, pairwise(run))
    return found
