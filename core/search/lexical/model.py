"""What a lexical search is asked and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from core.search.lexical.postings import Ints


@dataclass(frozen=True, slots=True)
class Scope:
    """What besides global and daily records is seen (contract.md, Scope)."""

    workspace_id: str | None = None
    session_id: str | None = None


NO_SCOPE = Scope()


@dataclass(frozen=True)
class LexicalResult:
    """The records that share a term with the query, best first; equal scores in code-point order of their ids.

    `numbers` and `scores` are the best `limit`; `every[n]` is the score of record number n, 0 where it does not match, is not
    visible, was erased or is newer than `revision`. `count` and `average` (terms a record) are those of the visible records,
    `holders` says how many of them hold each of the query's terms, in their order. `in_memory`: the index lacks the store or
    its version, so the records themselves were read.

    `all_ids[n]` is a record's id, empty when erased (or, in memory, not visible); `ordinals[n]` its place in its document;
    `pieces[n]` which piece of a long message it is (core/search/analysis.py; 0 in version 1). `visible` None: all are.
    """

    revision: int
    numbers: Ints
    scores: NDArray[np.float64]
    every: NDArray[np.float64]
    count: int
    average: float
    holders: Mapping[str, int]
    all_ids: NDArray[np.bytes_]
    ordinals: NDArray[np.int32]
    pieces: NDArray[np.int8]
    visible: NDArray[np.bool_] | None
    in_memory: bool = False

    @cached_property
    def ids(self) -> list[str]:
        return self.ids_of(self.numbers)

    def ids_of(self, numbers: Ints) -> list[str]:
        return [own_id.decode() for own_id in self.all_ids[numbers].tolist()]

    def previous(self, numbers: Ints) -> Ints:
        """The block before each one in the same document; -1 where it is the first."""
        return np.where(self.ordinals[numbers] > 0, numbers - 1, -1)

    def following(self, numbers: Ints) -> Ints:
        """The block behind each one in the same document; -1 where it is the last."""
        behind = numbers + 1
        within = np.minimum(behind, len(self.ordinals) - 1)
        there = (behind < len(self.ordinals)) & (self.ordinals[within] == self.ordinals[numbers] + 1)
        return np.where(there, behind, -1)
