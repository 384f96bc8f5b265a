"""The answer of `searches`: records with what each route said of them, and on demand why others are not among them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import UUID

from core.clock import monotonic, rfc3339
from core.errors import NotFound
from core.search import entities
from core.search.finding import Finder
from core.search.lexical.model import Scope
from core.search.paging import RECORD_UNITS
from core.search.request import K
from core.search.service import Engines, Hit, Route, SearchResult, asked, at_revision, search, times
from core.store.database import Database
from core.text import cut_units

FUSIONS = {1: "reciprocal ranks", 2: "standard scores"}


def answer(
    db: Database,
    engines: Engines,
    tenant_id: UUID,
    store_id: UUID,
    body: Mapping[str, Any],
    check: Callable[[], None],
) -> dict[str, Any]:
    """The result for a validated body of `searches`. Raises NotFound (the store was erased), InvalidRequest (`revision`,
    `routes`), and what `check` raises."""
    began = monotonic()
    with db.tenant(tenant_id) as tx:
        store = tx.row("reading_config", tenant=tenant_id, store=store_id)
    if store is None:
        raise NotFound("the store was erased")
    scope: dict[str, Any] = body.get("scope") or {}
    found = search(
        db, engines, tenant_id, store_id, body["query"], k=body.get("k", K), config=store["config"],
        revision=at_revision(body.get("revision"), store["revision"]),
        scope=Scope(scope.get("workspaceId"), scope.get("sessionId")), routes=body.get("routes"), check=check,
    )  # fmt: skip
    stats: dict[str, Any] = {
        "indexRoutes": found.index_routes,
        "embeddingMs": found.embedding_ms,
        "totalMs": round((monotonic() - began) * 1000),
    }
    if found.degraded:
        stats["degraded"] = found.degraded
    result: dict[str, Any] = {
        "revision": found.revision,
        "indexVersion": found.version,
        "items": [_item(hit, found.routes) for hit in found.hits],
        "stats": stats,
    }
    if body.get("explain"):
        k: int = body.get("k", K)
        with db.tenant(tenant_id) as tx:
            finder = Finder(tx, tenant_id, store_id, len(found.lexical.every))
            ids = finder.ids(route.numbers[:k] for route in found.routes.values())
        result["explain"] = _explanation(found, body["query"], k, ids)
    return result


def _item(hit: Hit, routes: Mapping[str, Route]) -> dict[str, Any]:
    record = cast("dict[str, Any]", json.loads(hit.row["canonical"]))
    data: dict[str, Any] = record.get("data") or {}
    text = cut_units(record["content"], RECORD_UNITS)
    item: dict[str, Any] = {
        "id": hit.row["id"],
        "sha256": hit.row["sha256"].hex(),
        "document": hit.row["document_id"],
        "position": hit.row["ordinal"],
        "score": hit.score,
        "routes": {name: said for name, route in routes.items() if (said := _said(route, hit.number))},
        "title": record["title"],
        "text": text,
    }
    if text != record["content"]:
        item["truncated"] = True
    return item | {name: data[name] for name in ("eventAt", "session") if name in data}


def _said(route: Route, number: int) -> dict[str, Any]:
    """Rank (from 0, among the route's first 200) and score of a record by one route; empty when it did not find it."""
    rank, score = route.rank(number), route.score(number)
    if rank is None and not score:
        return {}
    return {name: value for name, value in (("rank", rank), ("score", score)) if value is not None}


def _explanation(found: SearchResult, query: str, k: int, ids: Mapping[int, str]) -> dict[str, Any]:
    lexical, text = found.lexical, asked(query)
    fusion = "none" if found.version == 1 and set(found.routes) == {"lexical"} else FUSIONS[found.version]
    explained: dict[str, Any] = {
        "query": text,
        "fusion": fusion,
        "records": lexical.count,
        "averageTerms": lexical.average,
        "terms": [{"term": term, "records": holders} for term, holders in lexical.holders.items()],
        "routes": {name: _candidates(found, route, k, ids) for name, route in found.routes.items()},
    }
    if "entities" in found.routes:
        explained["entities"] = entities.entities(text)
    if "temporal" in found.routes:
        explained["times"] = [
            {name: rfc3339(side) for name, side in (("start", span.start), ("end", span.end)) if side is not None}
            for span in times(query)
        ]
    return explained


def _candidates(found: SearchResult, route: Route, k: int, ids: Mapping[int, str]) -> dict[str, Any]:
    """The first k of a route, each with its place in the result or why it has none."""
    places = {number: place for place, number in enumerate(found.numbers.tolist())}
    candidates: list[dict[str, Any]] = []
    for number in route.numbers[:k].tolist():
        if number not in ids:
            continue  # erased meanwhile
        place = places.get(number)
        if place is None:
            why = f"not among the first {len(places)} of all routes together"
        elif place < k:
            why = "in the result"
        else:
            why = f"all routes together put it beyond the first {k}"
        candidate = {
            "id": ids[number],
            **_said(route, number),
            "place": place,
            "in": place is not None and place < k,
            "why": why,
        }
        candidates.append({name: value for name, value in candidate.items() if value is not None})
    return {"found": route.found, "candidates": candidates}
