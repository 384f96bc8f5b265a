"""The index as a write commits: new records go into segments of their own, in the transaction that stores them.

Few records become a loose segment. When 256 are loose they are packed into one; a write of many packs its own with them. So
a store always has, in order of numbers: sealed segments (a row a term), packed ones, and less than 256 loose records. From
1,024 packed records on each packing asks for a job that seals them (sealing.py), some seconds later, for more may be on
their way: a search that knows nothing of the store reads what is packed whole. All this is under the store's row lock.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from core.ids import uuid7
from core.search.lexical.columns import Columns, Indexed
from core.search.lexical.postings import DOCUMENTS, Inverted, Packed
from core.search.lexical.terms import indexed
from core.store.database import Row, Tx

LOOSE = 256
SEAL = 1_024
SEAL_SECONDS = 2.0
"""At least: the relay's next sweep finds the job (`sweep_seconds`)."""
PACK = 8_192
PUBLIC = frozenset({"global", "daily"})
"""Scopes that every caller sees."""
JOB_ATTEMPTS = 5
JOB_KEEP_SECONDS = 3_600

ScopeKey = tuple[str, str | None, str | None]
"""Scope, workspace and session of a record."""


@dataclass(frozen=True, slots=True)
class Written:
    """A block that was just stored."""

    number: int
    id: str
    revision: int
    ordinal: int
    scope: ScopeKey
    canonical: str


def append(tx: Tx, tenant_id: UUID, store_id: UUID, records: Sequence[Written]) -> None:
    """Indexes new records, in order of their numbers, all above every number before. A store that had records before it had
    an index gets one by a job; until then it has none."""
    if not records:
        return
    wanted = tx.row("wanted_index", tenant=tenant_id, store=store_id)
    assert wanted is not None
    indexes = tx.rows("lexical_indexes", tenant=tenant_id, store=store_id)
    active = next((index for index in indexes if index["state"] == "active"), None)
    if active is None:
        if records[0].number > 0 or indexes:
            request_job(tx, tenant_id, store_id)
            return
        values: dict[str, Any] = {"build": 1, "version": wanted["version"], "state": "active"}
        tx.run("insert_index", tenant=tenant_id, store=store_id, **values)
        active = {**values, "sealed_to": 0, "loose_from": 0}
    first, end = records[0].number, records[-1].number + 1
    codes = scope_codes(tx, tenant_id, store_id, (record.scope for record in records))
    indexed_records = analysed(records, codes, active["version"])
    loose_from = add_segments(tx, tenant_id, store_id, active, indexed_records, first, end)
    if loose_from > active["loose_from"] or active["version"] != wanted["version"]:
        ask_for_job(tx, tenant_id, store_id, {**active, "loose_from": loose_from}, wanted["version"])


def ask_for_job(tx: Tx, tenant_id: UUID, store_id: UUID, active: Row, version: int) -> None:
    """When the active build is not of this version, or has much that is packed and can be sealed."""
    if active["version"] != version:
        request_job(tx, tenant_id, store_id)
    elif active["loose_from"] - active["sealed_to"] >= SEAL:
        request_job(tx, tenant_id, store_id, delay=SEAL_SECONDS)


def analysed(records: Sequence[Written], codes: Mapping[ScopeKey, int], version: int) -> list[Indexed]:
    found: list[Indexed] = []
    for record in records:
        terms, piece = indexed(record.canonical, version)
        code = codes[record.scope]
        found.append(Indexed(record.number, record.id, record.revision, record.ordinal, code, piece, terms))
    return found


def add_segments(
    tx: Tx, tenant_id: UUID, store_id: UUID, index: Row, records: Sequence[Indexed], first: int, end: int
) -> int:
    """Adds the numbers [first, end) to the end of a build; those that are not among the records were erased. What is loose is
    packed with them when it has become much. Answers from where on it is loose now."""
    place = {"tenant": tenant_id, "store": store_id, "build": index["build"]}
    loose_from: int = index["loose_from"]
    if end - loose_from < LOOSE:
        _insert(tx, place, *segment(records, first, end))
        return loose_from
    loose = tx.binary("packed_segments", **place, first=loose_from, end=first) if loose_from < first else []
    pieces = [(Columns.load(row), Packed(row["packed"]).inverted()) for row in loose]
    for start in range(first, end, PACK - LOOSE):
        stop = min(start + PACK - LOOSE, end)
        pieces.append(segment([record for record in records if start <= record.number < stop], start, stop))
        _insert(tx, place, *join(pieces))
        pieces = []
    if loose:
        tx.run("delete_segments", tenant=tenant_id, store=store_id, segments=[row["segment_id"] for row in loose])
    tx.run("move_index", **place, sealed_to=index["sealed_to"], loose_from=end, layout=1 if loose else 0)
    return end


def segment(records: Sequence[Indexed], first: int, end: int) -> tuple[Columns, Inverted]:
    """The numbers [first, end), at most 65,536 of them."""
    columns = Columns.of(records, first, end, records[0].revision if records else 0)
    texts: list[Sequence[str]] = [()] * (end - first)
    for record in records:
        texts[record.number - first] = record.terms
    return columns, Inverted.of(texts)


def join(pieces: Sequence[tuple[Columns, Inverted]]) -> tuple[Columns, Inverted]:
    """Neighbouring segments as one of at most 65,536 records."""
    if len(pieces) == 1:
        return pieces[0]
    columns = Columns.joined(part for part, _ in pieces)
    assert columns.end - columns.first <= DOCUMENTS
    return columns, Inverted.joined((inverted, part.first - columns.first) for part, inverted in pieces)


def _insert(tx: Tx, place: Mapping[str, object], columns: Columns, inverted: Inverted) -> None:
    tx.value("insert_segment", **place, **columns.stored(), packed=inverted.packed())


def scope_codes(tx: Tx, tenant_id: UUID, store_id: UUID, keys: Iterable[ScopeKey]) -> dict[ScopeKey, int]:
    """The codes of these scopes; 0 for what everyone sees."""
    seen = set(keys)
    codes = {key: 0 for key in seen if key[0] in PUBLIC}
    own = sorted({_reduced(key) for key in seen - codes.keys()})
    if own:
        scopes, workspaces, sessions = (list(column) for column in zip(*own, strict=True))
        rows = tx.rows(
            "scope_codes", tenant=tenant_id, store=store_id, scopes=scopes, workspaces=workspaces, sessions=sessions
        )
        known = {(row["scope"], row["workspace_id"], row["session_id"]): row["code"] for row in rows}
        codes |= {key: known[_reduced(key)] for key in seen - codes.keys()}
    return codes


def _reduced(key: ScopeKey) -> tuple[str, str, str]:
    """As stored: "" for none. A project's records are seen by its workspace, whatever session they come from."""
    scope, workspace, session = key
    return scope, workspace or "", "" if scope == "project" else session or ""


def request_job(
    tx: Tx, tenant_id: UUID, store_id: UUID, *, rebuild: bool = False, delay: float | None = None
) -> UUID | None:
    """Asks for a job that brings the store's index in order, to begin after `delay` seconds; its id, or None when one is on
    its way already.

    `rebuild`: anew from the records in any case."""
    return tx.value(
        "request_index_job", tenant=tenant_id, store=store_id, job=uuid7(),
        payload='{"rebuild":true}' if rebuild else "{}", keep=JOB_KEEP_SECONDS, attempts=JOB_ATTEMPTS, again=rebuild,
        delay=delay,
    )  # fmt: skip
