"""The lexical ranking over the stored records, literally: what the index must give to the last bit."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from core.search.analysis import analyse, searchable
from core.search.bm25 import idf, score
from core.search.lexical.terms import query_terms
from core.store.database import Database

Ranking = list[tuple[str, float]]


def literal(
    db: Database,
    tenant: UUID,
    store: UUID,
    query: str,
    *,
    version: int = 1,
    revision: int | None = None,
    workspace: str | None = None,
    session: str | None = None,
) -> Ranking:
    """Every record in Python, one document and term after the other (memory-agent.md §2.2)."""
    found = [
        (row["id"], analyse(searchable(json.loads(row["canonical"]), version), version))
        for row in stored(db, tenant, store)
        if (revision is None or row["revision"] <= revision) and visible(row, workspace, session)
    ]
    total = sum(len(terms) for _, terms in found)
    if not total:
        return []
    weights = [
        (term, idf(len(found), sum(term in terms for _, terms in found))) for term in query_terms(query, version)
    ]
    scored = [
        (own_id, score(weights, {term: terms.count(term) for term, _ in weights}, len(terms), total / len(found)))
        for own_id, terms in found
    ]
    return sorted((entry for entry in scored if entry[1] > 0), key=lambda entry: (-entry[1], entry[0]))


def visible(row: dict[str, Any], workspace: str | None, session: str | None) -> bool:
    """contract.md, Scope."""
    rules: dict[str, Callable[[], bool]] = {
        "global": lambda: True,
        "daily": lambda: True,
        "project": lambda: row["workspace_id"] == workspace,
        "session": lambda: row["session_id"] == session and row["workspace_id"] in (None, workspace),
    }
    return rules[row["scope"]]()


def stored(db: Database, tenant: UUID, store: UUID) -> list[dict[str, Any]]:
    with db.tenant(tenant) as tx:
        return tx.rows("indexable_records", tenant=tenant, store=store, first=0, end=2**40)
