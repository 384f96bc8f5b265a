"""The View of a retrieval-only read: ranked records in, bounded evidence out (memory-agent.md §7.1 step 3, §7.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from core.records import dates
from core.text import collapse_spaces, cut_units, size, units

VIEW_ITEMS = 16
VIEW_UNITS = 12_000
ITEM_UNITS = 4_000
"""Of one record's content, at most its beginning of this length is shown."""

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ranked record. `position` is the document's write position and the block's place in it; None: not readable."""

    id: str
    sha256: str
    record: Mapping[str, object]
    score: float
    position: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """What the retrieval found at `revision`, best first, and what it took. Times are whole milliseconds."""

    revision: int
    candidates: Sequence[Candidate]
    searches: int
    query_ms: int
    total_ms: int
    degraded: Sequence[str] = ()
    index_routes: Mapping[str, int] = field(default_factory=dict[str, int])
    """In how many of the searches each route of the index found a candidate (memory-agent.md §2.6)."""
    embedding_ms: int = 0


def compose(
    ranked: Ranked, *, policy: Mapping[str, bool], policy_hash: str, max_items: int = VIEW_ITEMS, order: str = ""
) -> dict[str, object]:
    """The View of contract.md (memory.read). Flags that are false and empty optional fields are left out.

    `order` is "" (by rank) or "time". Never has `hasEvidence` or `covered`: those need a judged witness.
    """
    chosen, truncated = _choose(ranked.candidates, max_items)
    degraded = list(ranked.degraded)
    if order == "time":
        if any(candidate.position is None for candidate, _ in chosen):
            degraded.append("order")
        else:
            chosen.sort(key=lambda entry: time_key(entry[0]))
    stats: dict[str, object] = {
        "searches": ranked.searches,
        "plannerCalls": 0,
        "decisionCalls": 0,
        "rounds": 0,
        "usage": {"calls": 0, "cached": 0, "byProvider": {}},
        "queryMs": ranked.query_ms,
        "embeddingMs": ranked.embedding_ms,
        "plannerMs": 0,
        "decisionMs": 0,
        "totalMs": ranked.total_ms,
    }
    if ranked.index_routes:
        stats["indexRoutes"] = dict(ranked.index_routes)
    if degraded:
        stats["degraded"] = degraded
    view: dict[str, object] = {
        "revision": ranked.revision,
        "strategy": "simple",
        "policy": dict(policy),
        "policyHash": policy_hash,
        "blocks": [],
        "items": [_item(candidate, text) for candidate, text in chosen],
        "needs": [],
        "stopReason": "retrieval-only" if ranked.candidates else "no-candidates",
        "stats": stats,
    }
    if truncated:
        view["truncated"] = True
    return view


def time_key(candidate: Candidate) -> tuple[bool, datetime, tuple[int, int], str]:
    """The key of view.order "time": dated records first, earlier first; then write position; then id."""
    data = _data(candidate.record)
    date = data.get("eventAt") or candidate.record.get("date") or candidate.record.get("createdAt")
    moment = dates.parse_loosely(date) if isinstance(date, str) else None
    return moment is None, moment or _NEVER, candidate.position or (0, 0), candidate.id


def _choose(candidates: Sequence[Candidate], max_items: int) -> tuple[list[tuple[Candidate, str]], bool]:
    """The records to show with their texts, and whether a limit kept any text out.

    A duplicate is no loss. A record too long for what is left is skipped; later, shorter ones may still fit.
    """
    chosen: list[tuple[Candidate, str]] = []
    seen: set[str] = set()
    used, truncated = 0, False
    for candidate in candidates:
        content = _content(candidate)
        text = cut_units(content, ITEM_UNITS)
        normal = collapse_spaces(text)
        if normal in seen:
            continue
        length = units(text)
        if len(chosen) >= max_items or used + length > VIEW_UNITS:
            truncated = True
            continue
        seen.add(normal)
        chosen.append((candidate, text))
        used += length
        truncated = truncated or text != content
    return chosen, truncated


def _item(candidate: Candidate, text: str) -> dict[str, object]:
    record = candidate.record
    data = _data(record)
    item: dict[str, object] = {"id": candidate.id, "sha256": candidate.sha256, "kind": record["kind"]}
    optional = {"date": record.get("date"), "eventAt": data.get("eventAt"), "session": data.get("session")}
    item |= {name: value for name, value in optional.items() if value}
    item |= {"score": candidate.score, "text": text, "span": {"start": 0, "end": size(text)}}
    if text != _content(candidate):
        item["truncated"] = True
    if "parent" in data:
        item["parent"] = data["parent"]
    return item


def _content(candidate: Candidate) -> str:
    return cast("str", candidate.record["content"])


def _data(record: Mapping[str, object]) -> Mapping[str, object]:
    return cast("Mapping[str, object]", record.get("data", {}))
