"""Committing writes in order of acceptance, reading records back, and erasing them.

A claim holds all queued writes of one store (sql/functions/claim.sql). They are built outside the transaction; inside it,
under the store's row lock and after the lease was checked, each takes its own revision, all rows go in at once, and the jobs
end. A job that fails for its own reason ends alone (architecture.md §3).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from core.clock import rfc3339
from core.errors import DocumentExists, Erased, JobFailed, LeaseLost, MunimentError, NotFound
from core.faults import Faults
from core.ids import numbered
from core.jobs.model import Claim, Ending
from core.jsontext import dumps
from core.records.build import NewDocument, build_conversation, build_write
from core.records.model import parse_conversation, parse_write
from core.records.rows import Rows
from core.search.lexical import erasing
from core.search.lexical.writing import Written, append
from core.search.vectors import storing
from core.store.database import Database, Row, Tx

KINDS = frozenset({"write", "conversation", "batch", "erase"})
"""The kinds of write this version can commit."""


@dataclass
class _Prepared:
    """One claimed job with what it would write; `documents` holds an error in place of an item that cannot be written."""

    claim: Claim
    documents: list[NewDocument | MunimentError] = field(default_factory=list[NewDocument | MunimentError])
    erase: dict[str, Any] | None = None
    error: MunimentError | None = None


@dataclass(frozen=True)
class Commit:
    """How the claimed jobs ended, and the queues of jobs that became ready by it: parents, and jobs for new vectors."""

    endings: list[Ending]
    woken: frozenset[str]


def commit_writes(db: Database, claims: Sequence[Claim], faults: Faults) -> Commit:
    """Writes and ends the jobs of one claim. Raises LeaseLost (nothing was written) and Unavailable (nothing is known)."""
    tenant_id, store_id, token = claims[0].tenant_id, claims[0].store_id, claims[0].lease_token
    assert store_id is not None
    prepared = [_prepare(claim) for claim in claims]
    with db.tenant(tenant_id) as tx:
        faults.hit("commit.begin")
        store = tx.row("lock_store", tenant=tenant_id, store=store_id)
        if store is None:
            raise LeaseLost("the store was erased")
        rows = tx.rows("lock_running", tenant=tenant_id, token=token, jobs=[claim.job_id for claim in claims])
        held = {row["job_id"] for row in rows}
        mine = [entry for entry in prepared if entry.claim.job_id in held]
        if not mine:
            raise LeaseLost("every job of the claim was taken away or cancelled")
        faults.hit("writes.locked")
        taken = _taken(tx, tenant_id, store_id, mine)
        faults.hit("writes.checked")
        writer = _Writer(tx, mine, store, taken)
        endings = [writer.apply(entry) for entry in mine]
        writer.flush()
        faults.hit("writes.inserted")
        ended = tx.rows(
            "end_jobs",
            tenant=tenant_id,
            jobs=[ending.job_id for ending in endings],
            tokens=[token] * len(endings),
            states=[ending.state for ending in endings],
            results=[ending.result for ending in endings],
            errors=[None if ending.error is None else json.dumps(ending.error) for ending in endings],
        )
        if len(ended) != len(endings):
            raise LeaseLost("a job of the claim was taken away in mid-commit")
        faults.hit("writes.finished")
        asked = writer.advance()
        faults.hit("commit.before")
    faults.hit("commit.after")
    return Commit(endings, asked | {row["woken"] for row in ended if row["woken"]})


def _prepare(claim: Claim) -> _Prepared:
    """Builds what a job would write; whatever is wrong with its body becomes its own error."""
    prepared = _Prepared(claim)
    try:
        body = claim.body()
        if claim.kind == "write":
            prepared.documents.append(_written(body, claim, str(claim.job_id)))
        elif claim.kind == "conversation":
            prepared.documents.append(_packed(body, claim, str(claim.job_id)))
        elif claim.kind == "batch":
            prepared.documents += [_item(body["items"][n], claim, n) for n in range(len(body["items"]))]
        elif claim.kind == "erase":
            prepared.erase = _selection(body)
        else:
            prepared.error = JobFailed(f"{claim.kind} is not a kind of write")
    except MunimentError as error:
        prepared.error = error
    except Exception as error:  # whatever it is, it must not fail the neighbours
        prepared.error = JobFailed(f"the job's body cannot be read: {type(error).__name__}: {error}")
    return prepared


def _written(body: dict[str, Any], claim: Claim, default_id: str) -> NewDocument:
    request = parse_write(body)
    return build_write(request, document_id=request.id or default_id, accepted_at=claim.created_at)


def _packed(body: dict[str, Any], claim: Claim, default_id: str) -> NewDocument:
    request = parse_conversation(body)
    return build_conversation(request, document_id=request.id or default_id, accepted_at=claim.created_at)


def _item(item: dict[str, Any], claim: Claim, n: int) -> NewDocument | MunimentError:
    """An item's default id is made from the job's, so that another try of the job writes the same document."""
    default_id = numbered(claim.job_id, n)
    try:
        return _packed(item, claim, default_id) if "messages" in item else _written(item, claim, default_id)
    except MunimentError as error:
        return error


def _selection(body: dict[str, Any]) -> dict[str, Any]:
    """What an erasure names. A value that Postgres would refuse must not fail the claim's other jobs."""
    for name in ("recordId", "sessionId", "workspaceId"):
        value = body.get(name)
        if value is not None and (not isinstance(value, str) or "\0" in value):
            raise ValueError(f"{name} is no text that a record can have")
    return body


def _taken(tx: Tx, tenant_id: UUID, store_id: UUID, prepared: Sequence[_Prepared]) -> set[str]:
    """Which ids of these documents and blocks are in use. Ids that we made ourselves are new by construction."""
    wanted: list[str] = []
    for entry in prepared:
        if '"id"' not in entry.claim.payload:
            continue
        for document in entry.documents:
            if isinstance(document, NewDocument) and document.id != str(entry.claim.job_id):
                wanted.append(document.id)
                wanted += [block.id for block in document.blocks]
    if not wanted:
        return set()
    return {row["id"] for row in tx.rows("taken_ids", tenant=tenant_id, store=store_id, ids=wanted)}


class _Writer:
    """Applies prepared jobs one after the other, gathering their rows; erasures flush what came before them."""

    def __init__(self, tx: Tx, mine: Sequence[_Prepared], store: Row, taken: set[str]) -> None:
        first = mine[0].claim
        assert first.store_id is not None
        self._tx = tx
        self._tenant = first.tenant_id
        self._store = first.store_id
        self._jobs = [entry.claim.job_id for entry in mine]
        self._revision: int = store["revision"]
        self._position: int = store["position"]
        self._number: int = store["next_number"]
        self._first_number = self._number
        self._embedding: str | None = store["embedding"]
        self._bytes = 0
        self._taken = taken
        self._rows = Rows()
        self._written: list[Written] = []
        self._erased = False

    def apply(self, entry: _Prepared) -> Ending:
        claim = entry.claim
        try:
            if self._erased:
                raise NotFound("the store was erased")
            if entry.error is not None:
                raise entry.error
            if entry.erase is not None:
                result = self._erase(entry.erase)
            elif claim.kind == "batch":
                result = {"items": [self._item(document) for document in entry.documents]}
            else:
                result = self._write(entry.documents[0])
        except MunimentError as error:
            return Ending(claim.job_id, "failed", claim.waiter, error=error.as_json())
        return Ending(claim.job_id, "succeeded", claim.waiter, result=dumps(result))

    def _item(self, document: NewDocument | MunimentError) -> dict[str, Any]:
        try:
            return self._write(document)
        except MunimentError as error:
            return {"error": error.as_json()}

    def _write(self, document: NewDocument | MunimentError) -> dict[str, Any]:
        if isinstance(document, MunimentError):
            raise document
        ids = [document.id, *(block.id for block in document.blocks)]
        if not self._taken.isdisjoint(ids):
            raise DocumentExists
        self._taken.update(ids)
        self._revision += 1
        self._position += 1
        self._bytes += document.size
        self._rows.add(document, self._revision, self._position, self._number)
        place = (document.scope, document.workspace_id, document.session_id)
        self._written += [
            Written(self._number + n, block.id, self._revision, n, place, block.canonical)
            for n, block in enumerate(document.blocks)
        ]
        self._number += len(document.blocks)
        return {
            "revision": self._revision,
            "document": {"id": document.id, "sha256": document.sha256},
            "blocks": [
                {"id": block.id, "sha256": block.sha256, "start": block.start, "end": block.end}
                for block in document.blocks
            ],
        }

    def _erase(self, body: dict[str, Any]) -> dict[str, Any]:
        self.flush()
        self._tx.run("allow_long_statements")
        self._tx.run("forget_texts", tenant=self._tenant, store=self._store)
        if body.get("store") is True:
            self._tx.run("end_jobs_of_store", tenant=self._tenant, store=self._store, jobs=self._jobs)
            erasing.erase_store(self._tx, self._tenant, self._store)
            storing.erase_store(self._tx, self._tenant, self._store)
            gone = self._tx.row("erase_store", tenant=self._tenant, store=self._store)
            self._erased = True
        else:
            selector = {
                "id": body.get("recordId"),
                "session": body.get("sessionId"),
                "workspace": body.get("workspaceId"),
            }
            found = self._tx.rows("documents_to_erase", tenant=self._tenant, store=self._store, **selector)
            if selector["id"] is not None and not found:
                self._missing(selector["id"])
            self._revision += 1
            documents = [row["id"] for row in found]
            erasing.erase_documents(self._tx, self._tenant, self._store, documents)
            storing.erase_documents(self._tx, self._tenant, self._store, documents)
            gone = self._tx.row(
                "erase_documents", tenant=self._tenant, store=self._store, ids=documents, revision=self._revision
            )
            erasing.drop_unused_scopes(self._tx, self._tenant, self._store)
            self._bytes -= 0 if gone is None else gone["bytes"]
        assert gone is not None
        counts = {name: gone[name] for name in ("documents", "records", "messages")}
        now = self._tx.value("database_now")
        return {"erased": counts, "revision": self._revision, "erasedAt": rfc3339(now)}

    def _missing(self, record_id: str) -> None:
        if self._tx.row("get_erasure", tenant=self._tenant, store=self._store, id=record_id):
            raise Erased(f"{record_id} was erased before")
        raise NotFound(f"there is no record {record_id}")

    def flush(self) -> None:
        self._rows.insert(self._tx, self._tenant, self._store)
        append(self._tx, self._tenant, self._store, self._written)
        self._rows, self._written = Rows(), []

    def advance(self) -> frozenset[str]:
        """Moves the store on and asks for the new records' vectors: the queue that has a new job for them, if any."""
        if self._erased:
            return frozenset()
        self._tx.run(
            "advance_store",
            tenant=self._tenant,
            store=self._store,
            revision=self._revision,
            position=self._position,
            next_number=self._number,
            bytes=self._bytes,
        )
        queue = "embed.bulk"  # computing vectors takes a core: not beside the writes that somebody waits for
        wanted = self._embedding is not None and self._number > self._first_number
        return frozenset({queue} if wanted and storing.request_job(self._tx, self._tenant, self._store, queue) else ())
