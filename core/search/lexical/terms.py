"""From records and queries to the terms of an index version."""

import json
from collections.abc import Mapping
from typing import cast

from core.search.analysis import analyse, piece, searchable
from core.search.bm25 import QUERY_UNITS
from core.text import cut_units


def record_terms(canonical: str, version: int) -> list[str]:
    """The terms of a record's searchable text, with repeats."""
    return analyse(searchable(cast("Mapping[str, object]", json.loads(canonical)), version), version)


def indexed(canonical: str, version: int) -> tuple[list[str], int]:
    """The same, and which piece of a long message the record is; version 1 does not ask."""
    record = cast("Mapping[str, object]", json.loads(canonical))
    return analyse(searchable(record, version), version), piece(record) if version > 1 else 0


def query_terms(query: str, version: int) -> list[str]:
    """The distinct terms of the lower-cased query's first 1,000 units, in the order of their first appearance
    (memory-agent.md §2.2)."""
    return list(dict.fromkeys(analyse(cut_units(query.lower(), QUERY_UNITS), version)))
