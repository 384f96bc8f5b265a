"""What of a record is searched, and the terms it is searched by, for each index version.

Version 1 is the frozen reference (memory-agent.md §1.1, §2.1). Version 2 knows the words of all scripts: stems without
stop words where Snowball has a stemmer, overlapping pairs of characters where spaces do not set words apart.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Literal, Protocol, cast

import Stemmer

from core.search import bm25, tokens

WORD_POINTS = 64
"""Longer words are cut: nobody types them, and a term has to fit into an index row."""
LONE_POINTS = 480
"""A chunk of one line of at least this length is a piece of a long message (see `piece`)."""
_REMEMBERED_RUNS = 50_000
_REMEMBERED_POINTS = 24

_STOP_WORDS = frozenset(
    word
    for line in Path(__file__).with_name("stopwords.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
    for word in line.split()
)

# The scripts that are read as pairs: those written without spaces, and Hangul, whose words carry their particles.
_HAN = (
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufad9\U00020000-\U0003347f"
)
_KANA = "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\uffa1-\uffdc"
_SOUTHEAST = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1050-\u109d\u1780-\u17d3"
_PAIRED = f"{_HAN}{_KANA}{_HANGUL}{_SOUTHEAST}"
# Marks that belong to words although Python's \w leaves them out (Unicode categories Mn and Mc).
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u07a6-\u07b0\u0900-\u0963\u0971-\u0df3"
    "\u0f18-\u0f39\u0f71-\u0f84\u0f90-\u0fbc\u1ab0-\u1aff\u1b00-\u1b44\u20d0-\u20ff\ufe20-\ufe2f"
)
_ASCII_WORD = re.compile("[a-z0-9]+")
_RUN = re.compile(f"\\w+(?:[{_MARKS}{_PAIRED}]+\\w*)*")
_PART = re.compile(f"[{_PAIRED}]+|(?:[^\\W_{_PAIRED}]|[{_MARKS}])+")
_IS_PAIRED = re.compile(f"[{_PAIRED}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})

# First and last character of the scripts that Snowball has a stemmer for; all other words are taken for English.
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
)
_ROLE = re.compile(r"[^\s:]{1,40}: ")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def analyse(text: str, version: int) -> list[str]:
    """The terms of `text` in order, with repeats; of any Unicode text, in time linear in its length."""
    if version == 1:
        return tokens.tokens(text)
    known = _PER_THREAD.known
    lowered = text.lower()
    if lowered.isascii():
        return [*filter(None, map(known.ascii.__getitem__, _ASCII_WORD.findall(lowered)))]
    return [term for word in _RUN.findall(lowered) for term in known[word]]


def searchable(record: Mapping[str, object], version: int) -> str:
    """The text of a record that `analyse` is given. Version 2: title, the day of the event in words, and the content."""
    if version == 1:
        return bm25.searchable_text(record)
    title, body, _ = _parts(record)
    return f"{title}\n{_day(record)}\n{body}"


def piece(record: Mapping[str, object]) -> Literal[0, 1, 2]:
    """A conversation's chunk as a piece of a long message: 0 it is none, 1 it begins one, 2 it goes on with it.

    A message over 540 units is wrapped at about that length (memory-agent.md §1.2), so each of its lines fills a chunk. That
    is what is looked for, since the record alone must tell: an index is rebuilt from records."""
    _, body, packed = _parts(record)
    if not packed or len(body) < LONE_POINTS or "\n" in body:
        return 0
    return 1 if _ROLE.match(body) else 2


def _parts(record: Mapping[str, object]) -> tuple[str, str, bool]:
    """Title, content, and whether it is a conversation's chunk: then without its heading, which repeats title and day."""
    title, content = cast("str", record["title"]), cast("str", record["content"])
    data = cast("Mapping[str, object]", record.get("data") or {})
    if data.get("format") == "conversation":
        return title, content.partition("\n")[2], True
    return ("" if content.startswith(title) else title), content, False


def _day(record: Mapping[str, object]) -> str:
    data = cast("Mapping[str, object]", record.get("data") or {})
    try:
        day = date.fromisoformat(str(data.get("eventAt"))[:10])
    except ValueError:
        return ""
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year} {_DAYS[day.weekday()]}"


def _pairs(run: str) -> tuple[str, ...]:
    return (run,) if len(run) == 1 else tuple([run[at : at + 2] for at in range(len(run) - 1)])


def _normal(word: str) -> str:
    """NFKC, lower case. In pieces, because composing a long run of marks takes time in the square of its length."""
    pieces = (word[at : at + WORD_POINTS] for at in range(0, len(word), WORD_POINTS))
    return "".join(unicodedata.normalize("NFKC", piece) for piece in pieces).lower()


class _Stemmer(Protocol):
    def stemWord(self, word: str, /) -> str: ...


def _stemmer(language: str) -> _Stemmer:
    # Without a cache of its own: `_Terms` remembers more than words.
    return cast("_Stemmer", Stemmer.Stemmer(language, 0))  # pyright: ignore[reportUnknownMemberType]


class _AsciiTerms(dict[str, str]):
    """Lower-case ASCII letters and digits to their term, "" for a stop word; remembers as `_Terms` does."""

    def __init__(self, term: Callable[[str], str]) -> None:
        super().__init__()
        self._term = term

    def __missing__(self, word: str) -> str:
        term = self._term(word)
        if len(word) <= _REMEMBERED_POINTS:
            if len(self) >= _REMEMBERED_RUNS:
                self.clear()
            self[word] = term
        return term


class _Terms(dict[str, tuple[str, ...]]):
    """Runs of lower-case letters, digits and `_` to their terms; remembers the short ones, up to a number."""

    def __init__(self) -> None:
        super().__init__()
        self._english = _stemmer("english")
        self._others = [(first, last, _stemmer(name)) for first, last, name in _SCRIPTS]
        self.ascii = _AsciiTerms(self._term)

    def __missing__(self, run: str) -> tuple[str, ...]:
        terms = self._terms(run)
        if len(run) <= _REMEMBERED_POINTS:
            if len(self) >= _REMEMBERED_RUNS:
                self.clear()
            self[run] = terms
        return terms

    def _terms(self, run: str) -> tuple[str, ...]:
        if run.isascii():
            return tuple(filter(None, map(self._term, run.split("_")))) if "_" in run else self._one(run)
        parts = _PART.findall(_normal(run))
        terms = {part: _pairs(part) if _IS_PAIRED.match(part) else self._one(part) for part in set(parts)}
        return tuple([term for part in parts for term in terms[part]])

    def _one(self, word: str) -> tuple[str, ...]:
        term = self._term(word)
        return (term,) if term else ()

    def _term(self, word: str) -> str:
        """ "" for a stop word."""
        word = word[:WORD_POINTS]
        if word in _STOP_WORDS:
            return ""
        if word.isascii():
            return self._english.stemWord(word)
        for first, last, stemmer in self._others:
            if first <= word[0] <= last:
                return stemmer.stemWord(word)
        folded = _ACCENTS.sub("", unicodedata.normalize("NFD", word)).translate(_LETTERS)
        return "" if folded in _STOP_WORDS else self._english.stemWord(folded)


class _PerThread(threading.local):
    """A stemmer must not be used by two threads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.known = _Terms()


_PER_THREAD = _PerThread()
