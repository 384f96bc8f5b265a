"""memory.read without a model: one search by the store's routes, then the View (contract.md, Operations).

What a search had to do without is in `stats.degraded`: `lexical-index` while a store's index is missing or being built (its
blocks are ranked in memory by the same rules), `embedding` when the question got no vector.
"""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from core.clock import monotonic
from core.errors import InvalidRequest, NotFound
from core.reading.view import VIEW_ITEMS, Candidate, Ranked, compose
from core.search.lexical.model import Scope
from core.search.service import Engines, Hit, at_revision, search
from core.store.database import Database

RANKED = 200
"""The candidates kept of a search: as many as any route may hand to fusion."""


def read(
    db: Database,
    engines: Engines,
    tenant_id: UUID,
    store_id: UUID,
    body: dict[str, Any],
    check: Callable[[], None],
) -> dict[str, Any]:
    """The View for a validated body of `reads`. `check` is called in long work and raises when the time is up.

    Raises NotFound (the store was erased) and InvalidRequest (`maxItems`, `revision`)."""
    began = monotonic()
    with db.tenant(tenant_id) as tx:
        store = tx.row("reading_config", tenant=tenant_id, store=store_id)
    if store is None:
        raise NotFound("the store was erased")
    revision = at_revision(body.get("revision"), store["revision"])
    config: dict[str, Any] = store["config"]
    view_config: dict[str, Any] = config.get("view") or {}
    max_items = _max_items(body, view_config)

    wanted: dict[str, Any] = body.get("scope") or {}
    recent: list[dict[str, Any]] = body.get("recent") or []
    found = search(
        db, engines, tenant_id, store_id, body["question"], k=RANKED, config=config, revision=revision,
        scope=Scope(wanted.get("workspaceId"), wanted.get("sessionId")),
        recent=[message["content"] for message in recent], check=check,
    )  # fmt: skip

    took = round((monotonic() - began) * 1000)
    return compose(
        Ranked(
            revision=revision,
            candidates=[_candidate(hit) for hit in found.hits],
            searches=1,
            query_ms=took,
            total_ms=took,
            degraded=found.degraded,
            index_routes=found.index_routes,
            embedding_ms=found.embedding_ms,
        ),
        policy=config["policy"],
        policy_hash=store["policy_hash"],
        max_items=max_items,
        order=view_config.get("order", ""),
    )


def _max_items(body: dict[str, Any], view_config: dict[str, Any]) -> int:
    limit: int = view_config.get("maxItems") or VIEW_ITEMS
    wanted: int = body.get("maxItems") or limit
    if wanted > limit:
        raise InvalidRequest.field("maxItems", f"the store's view.maxItems is {limit}: ask for at most that")
    return wanted


def _candidate(hit: Hit) -> Candidate:
    row = hit.row
    return Candidate(
        row["id"], row["sha256"].hex(), json.loads(row["canonical"]), hit.score, (row["position"], row["ordinal"])
    )
