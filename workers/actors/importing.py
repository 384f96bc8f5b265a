"""Imports: an archive is read and cut into batches of writes, the job's children; then their results are counted.

The place in the archive and the counts move in the transaction that adds the children, under the job's lease: a worker that
is lost in mid-split neither loses a conversation nor sends one twice (failure-cases.md S6). At most so many children are
out at once; then the job waits without a thread, and the last child wakes it.

Each time it is woken the reading goes on from the place: nothing before it is parsed again. An upload that is the bare file
is sought in, so the import takes time in proportion to its size. A zip's member has to be unpacked up to the place: n bytes
in k wakes cost n of parsing (20 MB/s) and n * k / 2 of unpacking (0.2 GB/s). A wake takes about 90 MB of an export, so that
2 GB cost twice their parsing, which is a tenth of what writing them costs. The ids of what came before are read too, 16 bytes
a conversation. More in deploy/docs/performance.md.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from core.archives.model import Conversation, Part, Skipped
from core.archives.parts import parts
from core.archives.place import Place, digest
from core.archives.reader import Entry
from core.archives.run import Run, advance, count_in, end, load_run, seen_before
from core.archives.service import open_checked
from core.archives.uploads import Upload, open_upload
from core.clock import monotonic, now
from core.errors import Cancelled, InvalidRequest, JobFailed, LeaseLost
from core.ids import uuid7
from core.jobs.model import Deferred, Done, Outcome, Waiting
from core.jsontext import dumps
from core.records.limits import MIB
from core.store.database import Tx
from core.text import size
from workers.actors.work import Work
from workers.queues import BULK, queue_name

BATCH_PARTS = 200
BATCH_BYTES = 2 * MIB
CHILDREN = 50
"""The most children that are out at once, and the most of their bytes; one conversation may go beyond either. Fewer would
mean more wakes, and each unpacks a zip anew up to its place."""
CHILDREN_BYTES = 64 * MIB
ITEMS = 1_000
"""After this many items the place is stored even when they gave nothing to write."""
LAST_SHARE = 0.1
"""Of a run's time: when no more than this is left, the job goes on in a fresh run."""
OTHERS_SECONDS = 2.0
"""Before a job looks again after children of an earlier run, which do not wake it."""


def import_archive(work: Work) -> Outcome:
    """Goes on with the import `{"importId"}` where it stands. The result is `{importId, state, report}`, `state` succeeded or
    paused.

    Raises InvalidRequest (the archive cannot be read, or holds no message), JobFailed (not one document could be written)."""
    try:
        return _go_on(work)
    except _Stopped:
        return _go_on(work)  # paused meanwhile: nothing of what was about to be sent was


class _Stopped(Exception):
    """The import was paused or cancelled since it was loaded."""


def _go_on(work: Work) -> Outcome:
    claim = work.claim
    run, counted = load_run(work.db, claim.tenant_id, _import_id(work), claim.job_id)
    if run.state == "paused":
        return _wait(run) if run.tally.sent else _done(run, "paused")
    if run.state != "running":
        raise Cancelled(f"the import is {run.state}")
    if counted:
        _store(work, run)
    if not run.tally.read_all and _Split(work, run).run():
        return _wait(run)
    return _wait(run) if run.tally.sent else _finish(run)


def _import_id(work: Work) -> UUID:
    try:
        return UUID(work.body()["importId"])
    except (KeyError, ValueError) as error:
        raise JobFailed(f"the job's body cannot be read: {type(error).__name__}: {error}") from error


def _wait(run: Run) -> Outcome:
    if run.tally.sent and not run.open_children:
        return Deferred("children", now() + timedelta(seconds=OTHERS_SECONDS))
    return Waiting()


def _finish(run: Run) -> Outcome:
    """Everything was read, and every child has ended."""
    tally = run.tally
    there = tally.documents + tally.already_there
    if tally.problem is not None:
        before = f" What came before, {tally.conversations} conversations, was imported." if there else ""
        raise InvalidRequest(f"{tally.problem['detail']}{before}")
    if not there:
        first = tally.failures[0]["error"] if tally.failures else "nothing is known of its writes"
        raise JobFailed(f"none of {tally.failed} documents could be written: {first}")
    return _done(run, "succeeded")


def _done(run: Run, state: str) -> Done:
    result = {"importId": str(run.import_id), "state": state, "report": run.tally.shown()}
    return Done(result, lambda tx: end(tx, run, state))


def _store(work: Work, run: Run, payloads: dict[UUID, str] | None = None, read: "_Read | None" = None) -> None:
    """Counts, place and new children in one transaction, if the job and the import are still ours. Raises LeaseLost."""
    claim = work.claim
    report = dumps(run.tally.stored())  # before the job's row is locked: children that end wait for it
    with work.db.tenant(claim.tenant_id) as tx:
        held = tx.run(
            "set_progress", tenant=claim.tenant_id, job=claim.job_id, token=claim.lease_token,
            done=run.tally.done_bytes(), total=run.size, unit="bytes",
        )  # fmt: skip
        if not held:
            raise LeaseLost("the job was cancelled or taken over")
        if payloads:
            _add_children(tx, work, payloads)
        if not (advance(tx, run, report) if read is None else advance(tx, run, report, read.place, b"".join(read.ids))):
            raise _Stopped
    if read is not None:
        run.place, run.next_item = read.place, read.place.items


def _add_children(tx: Tx, work: Work, payloads: dict[UUID, str]) -> None:
    kind = work.kinds["batch"]
    added = tx.value(
        "add_children",
        tenant=work.claim.tenant_id,
        parent=work.claim.job_id,
        token=work.claim.lease_token,
        jobs=list(payloads),
        kind=kind.name,
        queue=queue_name(kind.queue, BULK),
        payloads=list(payloads.values()),
        keep=kind.keep_seconds,
        max_attempts=work.settings.max_attempts,
        total=None,
        unit=None,
    )
    if not added:
        raise LeaseLost("the job was cancelled or taken over")


@dataclass
class _Read:
    """What was read since the run's place was last stored: the place now, and the digests of the conversations' ids."""

    place: Place
    ids: list[bytes] = field(default_factory=list[bytes])


class _Split:
    """Reads on from the import's place and sends children until there are enough of them, or nothing is left."""

    def __init__(self, work: Work, run: Run) -> None:
        self._work = work
        self._run = run
        self._pending: list[tuple[Part, str, int]] = []
        self._bytes = 0
        self._read = _Read(run.place)

    def run(self) -> bool:
        """Whether something is left. Raises InvalidRequest for an upload that is no archive we can read."""
        run = self._run
        if not self._room():
            return True
        stream, raw = open_upload(self._work.db, run.tenant_id, run.import_id, run.size)
        archive = open_checked(stream, run.filename, run.format)
        run.format = archive.format
        left = {reason: left.count for reason, left in run.tally.skipped.items()}
        try:
            for entry in archive.entries(run.place, seen_before(self._work.db, run), left):
                self._work.check()
                if self._enough() and not self._send(raw):
                    return True
                self._take(entry)
        except InvalidRequest as error:
            if not self._read.place.items:
                raise
            run.tally.problem = error.as_json()
        run.tally.read_all = True
        self._send(raw)
        return False

    def _take(self, entry: Entry) -> None:
        for number, item in enumerate(entry.found, entry.after.items - len(entry.found)):
            if isinstance(item, Conversation):
                self._read.ids.append(digest(item.id))
            if number >= self._run.next_item:  # else a worker of an older version sent it, which stored no place
                self._count(item)
        self._read.place = entry.after

    def _count(self, item: Conversation | Skipped) -> None:
        if isinstance(item, Skipped):
            self._run.tally.skip(item)
            return
        self._run.tally.read(item)
        for part in parts(item):
            body = dumps(part.request())
            self._pending.append((part, body, size(body)))
            self._bytes += self._pending[-1][2]

    def _enough(self) -> bool:
        new = self._read.place.items - self._run.next_item
        if len(self._pending) >= BATCH_PARTS or self._bytes >= BATCH_BYTES or new >= ITEMS:
            return True
        return new > 0 and self._late()

    def _late(self) -> bool:
        run_seconds = self._work.kinds[self._work.claim.kind].run_seconds
        return self._work.hold.deadline - monotonic() < LAST_SHARE * run_seconds

    def _room(self) -> bool:
        """Whether more children may go out; those that have ended meanwhile make room."""
        if self._full():
            with self._work.db.tenant(self._run.tenant_id) as tx:
                count_in(tx, self._run)
        return not self._full()

    def _full(self) -> bool:
        tally = self._run.tally
        return len(tally.sent) >= CHILDREN or tally.waiting_bytes() >= CHILDREN_BYTES

    def _send(self, raw: Upload) -> bool:
        """Makes children of what is pending and moves the import's place; whether this run may go on."""
        tally = self._run.tally
        payloads: dict[UUID, str] = {}
        for batch in _batches(self._pending):
            child = uuid7()
            payloads[child] = '{"items":[' + ",".join(body for _, body, _ in batch) + "]}"
            tally.send(str(child), [part for part, _, _ in batch], sum(more for _, _, more in batch))
        tally.position = max(tally.position, min(raw.tell(), self._run.size))
        if tally.read_all:
            tally.position = self._run.size
        self._pending, self._bytes = [], 0
        self._work.faults.hit("import.split")
        _store(self._work, self._run, payloads, self._read)
        self._read = _Read(self._run.place)
        self._work.faults.hit("import.children")
        self._run.open_children = self._run.open_children or bool(payloads)
        return self._room() and not self._late()


def _batches(pending: list[tuple[Part, str, int]]) -> list[list[tuple[Part, str, int]]]:
    """The parts in their order, as few children as the bounds allow; a part beyond the bound alone."""
    batches: list[list[tuple[Part, str, int]]] = []
    held = 0
    for entry in pending:
        if not batches or len(batches[-1]) == BATCH_PARTS or held + entry[2] > BATCH_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(entry)
        held += entry[2]
    return batches
