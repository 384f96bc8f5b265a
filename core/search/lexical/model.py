"""What a lexical search is asked and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.postings import Ints


@dataclass(frozen=True, slots=True)
class Scope:
    """What besides global and daily records is seen (contract.md, Scope)."""

    workspace_id: str | None = None
    session_id: str | None = None


NO_SCOPE = Scope()


@dataclass(frozen=True, slots=True)
class LexicalResult:
    """The records that share a term with the query, best first; equal scores in code-point order of their ids.

    `numbers`, `scores` and `ids` are the best `limit` (no ids when the search was not to name them); `every[n]` is the score
    of record number n, 0 where it does not match, is not visible, was erased or is newer than `revision`. `count` and
    `average` (terms a record) are those of the visible records, `holders` says how many of them hold each of the query's
    terms, in their order. `in_memory`: the index lacks the store or its version, so the records themselves were read.

    `ordinals[n]` is a record's place in its document, `pieces[n]` which piece of a long message it is
    (core/search/analysis.py; 0 in version 1). `visible` None: all are, and none was erased.
    `all_seen`: all that were not erased are visible, for sure.
    """

    revision: int
    numbers: Ints
    scores: NDArray[np.float64]
    ids: Sequence[str]
    every: NDArray[np.float64]
    count: int
    average: float
    holders: Mapping[str, int]
    ordinals: NDArray[np.int32]
    pieces: NDArray[np.int8]
    visible: NDArray[np.bool_] | None
    all_seen: bool = False
    in_memory: bool = False
