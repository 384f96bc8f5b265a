"""memory.read without a model: exact BM25 over the blocks a caller may see, then the View (contract.md, Operations).

There is no lexical index yet, so every visible block is ranked in memory by the frozen rules; a store whose configuration
asks for the index is told so (`lexical-index` in `stats.degraded`).
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from core.clock import monotonic
from core.errors import InvalidRequest, NotFound
from core.reading.view import VIEW_ITEMS, Candidate, Ranked, compose
from core.search.bm25 import rank, searchable_text
from core.store.database import Database, Row

PAGE = 2_000
RANKED = 200
"""The candidates kept of a search: as many as any route may hand to fusion."""


def read(
    db: Database, tenant_id: UUID, store_id: UUID, body: dict[str, Any], check: Callable[[], None]
) -> dict[str, Any]:
    """The View for a validated body of `reads`. `check` is called between pages and raises when the time is up.

    Raises NotFound (the store was erased) and InvalidRequest (`maxItems`, `revision`)."""
    began = monotonic()
    with db.tenant(tenant_id) as tx:
        store = tx.row("reading_config", tenant=tenant_id, store=store_id)
    if store is None:
        raise NotFound("the store was erased")
    revision = _revision(body, store)
    config: dict[str, Any] = store["config"]
    view_config: dict[str, Any] = config.get("view") or {}
    max_items = _max_items(body, view_config)

    scope: dict[str, Any] = body.get("scope") or {}
    visible = {"workspace": scope.get("workspaceId"), "session": scope.get("sessionId")}
    pages = _pages(db, tenant_id, store_id, revision, visible, check)
    ranked = rank(body["question"], ((row["id"], searchable_text(json.loads(row["canonical"]))) for row in pages))[
        :RANKED
    ]
    with db.tenant(tenant_id) as tx:
        ids = [record_id for record_id, _ in ranked]
        rows = tx.rows("records_by_id", tenant=tenant_id, store=store_id, ids=ids, revision=revision)
    by_id = {row["id"]: row for row in rows}
    candidates = [_candidate(by_id[record_id], score) for record_id, score in ranked if record_id in by_id]

    index: dict[str, Any] = config.get("index") or {}
    took = round((monotonic() - began) * 1000)
    return compose(
        Ranked(
            revision=revision,
            candidates=candidates,
            searches=1,
            query_ms=took,
            total_ms=took,
            degraded=["lexical-index"] if index.get("lexical") else [],
        ),
        policy=config["policy"],
        policy_hash=store["policy_hash"],
        max_items=max_items,
        order=view_config.get("order", ""),
    )


def _revision(body: dict[str, Any], store: Row) -> int:
    wanted: int | None = body.get("revision")
    if wanted is None:
        return store["revision"]
    if wanted > store["revision"]:
        raise InvalidRequest.field("revision", f"the store is at revision {store['revision']}: ask for at most that")
    return wanted


def _max_items(body: dict[str, Any], view_config: dict[str, Any]) -> int:
    limit: int = view_config.get("maxItems") or VIEW_ITEMS
    wanted: int = body.get("maxItems") or limit
    if wanted > limit:
        raise InvalidRequest.field("maxItems", f"the store's view.maxItems is {limit}: ask for at most that")
    return wanted


def _pages(
    db: Database, tenant_id: UUID, store_id: UUID, revision: int, visible: dict[str, Any], check: Callable[[], None]
) -> Iterator[Row]:
    """Every visible block at the revision; no connection is held between pages."""
    after = (-1, -1)
    while True:
        check()
        with db.tenant(tenant_id) as tx:
            rows = tx.rows(
                "read_candidates",
                tenant=tenant_id,
                store=store_id,
                revision=revision,
                after_position=after[0],
                after_ordinal=after[1],
                limit=PAGE,
                **visible,
            )
        yield from rows
        if len(rows) < PAGE:
            return
        after = (rows[-1]["position"], rows[-1]["ordinal"])


def _candidate(row: Row, score: float) -> Candidate:
    return Candidate(
        row["id"], row["sha256"].hex(), json.loads(row["canonical"]), score, (row["position"], row["ordinal"])
    )
