"""Writes from accept to readable rows: order, all or nothing, the same bytes, and erasure among them."""

import hashlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest

from core.errors import LeaseLost, MunimentError
from core.faults import Faults
from core.records.reading import get_messages, get_record, list_records
from core.records.service import commit_writes
from core.tenants.stores import store_id_of
from tests.conftest import TestDatabase
from tests.fakes.corpus import REFUSED, TEXTS
from tests.fakes.fleet import Fleet, fleet, until
from tests.fakes.jobs import WRITE, Jobs
from tests.rows import execute

NO_FAULTS = Faults()


@pytest.fixture
def jobs(database: TestDatabase, tenant: UUID) -> Jobs:
    return Jobs(database, tenant)


@pytest.fixture
def journal(database: TestDatabase, tenant: UUID) -> UUID:
    with database.app.tenant(tenant) as tx:
        return store_id_of(tx, tenant, "journal")


def write_all(jobs: Jobs, *bodies: Any, kind: str = "write") -> list[dict[str, Any]]:
    """Accepts and commits the bodies in one claim; their job rows, results decoded."""
    accepted = [jobs.accept(kind if "kind" not in body else body.pop("kind"), WRITE, body) for body in bodies]
    claims = jobs.claim_writes(accepted[0])
    assert len(claims) == len(accepted)
    commit_writes(jobs.database.app, claims, NO_FAULTS)
    rows = [jobs.row(job) for job in accepted]
    return [{**row, "result": row["result"] and json.loads(row["result"])} for row in rows]


def listed(jobs: Jobs, store: UUID) -> list[dict[str, Any]]:
    with jobs.database.app.tenant(jobs.tenant) as tx:
        return list_records(tx, jobs.tenant, store, limit=10_000)


def content(jobs: Jobs, store: UUID, record: str) -> str:
    with jobs.database.app.tenant(jobs.tenant) as tx:
        return json.loads(get_record(tx, jobs.tenant, store, record).canonical)["content"]


# -- order ------------------------------------------------------------------------------------------------------------


def test_h11_s21_writers_to_one_session_lose_no_turn_and_keep_their_order(
    database: TestDatabase, redis_url: str, tenant: UUID, journal: UUID
) -> None:
    """20 writers of 25 messages each, to one session, all at once."""
    with fleet(database, redis_url, tenant) as parts:
        parts.submitter()
        parts.worker()
        parts.worker()
        parts.relay()

        def writer(n: int) -> list[UUID]:
            return [
                parts.accept(
                    "conversation",
                    json.dumps({"sessionId": "s", "messages": [{"role": "user", "content": f"{n}: {turn}"}]}),
                )
                for turn in range(25)
            ]

        with ThreadPoolExecutor(20) as pool:
            accepted = list(pool.map(writer, range(20)))
        ended = parts.wait((job for one in accepted for job in one), 60)
        assert {job.state for job in ended} == {"succeeded"}
        revisions = {job.id: job.result["revision"] for job in ended if job.result}
        assert sorted(revisions.values()) == list(range(1, 501)), "gapless and unique"
        by_acceptance = sorted(ended, key=lambda job: job.row["seq"])
        assert [revisions[job.id] for job in by_acceptance] == list(range(1, 501))
        for one in accepted:
            assert [revisions[job] for job in one] == sorted(revisions[job] for job in one)
        documents = [row for row in listed(Jobs(database, tenant), journal) if row["kind"] == "memory-document"]
        assert len(documents) == 500
        assert len({row["id"] for row in documents}) == 500


def test_nothing_overtakes_a_write_that_is_parked(jobs: Jobs) -> None:
    first, second = (jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(2))
    claims = jobs.claim_writes(first, limit=1)
    jobs.retry(claims[0], delay=60)
    assert jobs.claim_writes(second) == []
    assert jobs.dispatch(WRITE) == []
    jobs.run_out(first)
    assert jobs.sweep() == {first: "due"}
    assert jobs.dispatch(WRITE) == [first]
    assert [claim.job_id for claim in jobs.claim_writes(first)] == [first]


def test_a_claim_is_bounded_in_jobs_and_bytes(jobs: Jobs) -> None:
    accepted = [jobs.accept("write", WRITE, {"text": "x" * 1_000}) for _ in range(6)]
    first = jobs.claim_writes(accepted[0], size=3_100)
    assert [claim.job_id for claim in first] == accepted[:3]
    assert jobs.claim_writes(accepted[3]) == [], "one claim a store at a time"
    jobs.finish_all(first)
    assert [claim.job_id for claim in jobs.claim_writes(accepted[3], limit=2)] == accepted[3:5]


def test_one_write_larger_than_a_claim_is_still_taken(jobs: Jobs) -> None:
    job = jobs.accept("write", WRITE, {"text": "x" * 5_000})
    assert len(jobs.claim_writes(job, size=100)) == 1


# -- each for itself ----------------------------------------------------------------------------------------------------


def test_h9_a_body_that_cannot_be_read_ends_alone_and_the_order_holds(jobs: Jobs, journal: UUID) -> None:
    bad = [
        "{", "[]", "null", '"x"', "{}", '{"text": 7}', '{"text": "x", "id": "bad_id"}', "[" * 100_000, '{"items": 3}',
        '{"recordId": {"a": 1}}', '{"recordId": "a\\u0000b"}', '{"recordId": 5}', '{"items": "abc"}', '{"items": [null, 4]}',
    ]  # fmt: skip
    kinds = ["write"] * 8 + ["batch"] + ["erase"] * 3 + ["batch"] * 2
    good = [jobs.accept("write", WRITE, {"text": "first"})]
    wrong = [jobs.accept(kind, WRITE, payload=body) for kind, body in zip(kinds, bad, strict=True)]
    good.append(jobs.accept("write", WRITE, {"text": "last"}))
    claims = jobs.claim_writes(good[0])
    assert len(claims) == len(bad) + 2
    commit_writes(jobs.database.app, claims, NO_FAULTS)
    states = jobs.states()
    assert [states[job] for job in good] == ["succeeded", "succeeded"]
    failed = [jobs.row(job) for job in wrong if states[job] != "succeeded"]
    assert len(failed) >= len(bad) - 2, "an item of a batch fails in the batch's result"
    assert all(row["state"] == "failed" and row["error"]["detail"] for row in failed)
    assert [json.loads(jobs.row(job)["result"])["revision"] for job in good] == [1, 2]
    assert [row["revision"] for row in listed(jobs, journal) if row["kind"] == "memory-document"] == [1, 2]


def test_a_taken_id_fails_its_job_or_its_item_alone(jobs: Jobs, journal: UUID) -> None:
    ended = write_all(
        jobs,
        {"text": "a", "id": "one"},
        {"text": "b", "id": "one"},
        {"kind": "batch", "items": [{"text": "c"}, {"text": "d", "id": "one"}, {"text": "e", "id": "two"}]},
        {"text": "f", "id": "two-b0000"},
        {"text": "g", "id": "two"},
    )
    assert [row["state"] for row in ended] == ["succeeded", "failed", "succeeded", "failed", "failed"]
    assert ended[1]["error"]["detail"] == "document id already exists"
    items = ended[2]["result"]["items"]
    assert [item.get("revision") for item in items] == [2, None, 3]
    assert items[1]["error"]["type"] == "/problems/document-exists"
    assert content(jobs, journal, "one") == "a"
    assert content(jobs, journal, "two-b0000") == "e", "a block's id is taken too"


def test_n10_a_write_that_fails_leaves_nothing(jobs: Jobs, journal: UUID) -> None:
    job = jobs.accept("write", WRITE, {"text": "x", "scope": "project"})
    commit_writes(jobs.database.app, jobs.claim_writes(job), NO_FAULTS)
    assert jobs.row(job)["state"] == "failed"
    assert listed(jobs, journal) == []
    assert execute(jobs.database.admin, "select revision, position, stored_bytes from stores") == [(0, 0, 0)]


@pytest.mark.parametrize(
    "point", ["commit.begin", "writes.locked", "writes.checked", "writes.inserted", "writes.finished", "commit.before"]
)
def test_an_error_inside_a_commit_leaves_nothing(jobs: Jobs, journal: UUID, point: str) -> None:
    accepted = [jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(3)]
    claims = jobs.claim_writes(accepted[0])
    with pytest.raises(MunimentError):
        commit_writes(jobs.database.app, claims, Faults(f"{point}=raise"))
    assert listed(jobs, journal) == []
    assert set(jobs.states().values()) == {"running"}
    commit_writes(jobs.database.app, claims, NO_FAULTS)
    assert len(listed(jobs, journal)) == 6


def test_a_claim_that_was_lost_writes_nothing(jobs: Jobs, journal: UUID) -> None:
    accepted = [jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(3)]
    claims = jobs.claim_writes(accepted[0])
    jobs.run_out()
    jobs.sweep()
    with pytest.raises(LeaseLost):
        commit_writes(jobs.database.app, claims, NO_FAULTS)
    assert listed(jobs, journal) == []


def test_cancelling_one_write_of_a_claim_spares_the_others(jobs: Jobs, journal: UUID) -> None:
    accepted = [jobs.accept("write", WRITE, {"text": f"{n}"}) for n in range(3)]
    claims = jobs.claim_writes(accepted[0])
    assert jobs.cancel(accepted[1]) == "ended"
    commit_writes(jobs.database.app, claims, NO_FAULTS)
    states = jobs.states()
    assert [states[job] for job in accepted] == ["succeeded", "cancelled", "succeeded"]
    blocks = [row["id"] for row in listed(jobs, journal) if row["kind"] == "memory-record"]
    assert [content(jobs, journal, block) for block in blocks] == ["0", "2"]


# -- erasure among writes -----------------------------------------------------------------------------------------------


def test_erasing_a_store_in_the_middle_of_a_claim(jobs: Jobs, journal: UUID) -> None:
    ended = write_all(jobs, {"text": "before"}, {"kind": "erase", "store": True}, {"text": "after"})
    assert [row["state"] for row in ended] == ["succeeded", "succeeded", "failed"]
    assert ended[1]["result"]["erased"]["documents"] == 1
    assert ended[2]["error"]["type"] == "/problems/not-found"
    for table in ("stores", "documents", "records", "messages", "erasures"):
        assert execute(jobs.database.admin, f"select count(*) from {table}") == [(0,)], table


def test_what_waits_for_an_erased_store_ends(jobs: Jobs, journal: UUID) -> None:
    erase = jobs.accept("erase", WRITE, {"store": True})
    claims = jobs.claim_writes(erase)
    late = jobs.accept("write", WRITE, {"text": "late"})
    read = jobs.accept("read", "read.interactive", {"question": "?"}, store="journal")
    commit_writes(jobs.database.app, claims, NO_FAULTS)
    assert [jobs.row(job)["state"] for job in (erase, late, read)] == ["succeeded", "failed", "failed"]
    assert jobs.claim_writes(late) == []


def test_an_erased_document_goes_with_its_blocks_and_its_id_is_never_given_again(jobs: Jobs, journal: UUID) -> None:
    ended = write_all(
        jobs,
        {"text": "secret", "id": "one"},
        {"kind": "erase", "recordId": "one-b0000"},
        {"text": "again", "id": "one"},
        {"kind": "erase", "recordId": "one"},
        {"kind": "erase", "recordId": "none"},
    )
    assert [row["state"] for row in ended] == ["succeeded", "succeeded", "failed", "failed", "failed"]
    assert [row["error"]["status"] for row in ended[2:]] == [409, 410, 404]
    assert listed(jobs, journal) == []


def test_s36_writers_erasures_retention_and_listing_at_once(
    database: TestDatabase, redis_url: str, tenant: UUID, journal: UUID
) -> None:
    """All on one store for two seconds: nobody is refused for a lock, and every job ends."""
    jobs = Jobs(database, tenant)
    before = _deadlocks(database)
    with fleet(database, redis_url, tenant, keep_payload_hours="0.0001") as parts:
        parts.submitter()
        parts.worker()
        parts.worker("bulk")
        parts.relay()
        stopping = threading.Event()

        def write(n: int) -> list[UUID]:
            return _while(stopping, lambda turn: parts.accept("write", json.dumps({"text": "x", "id": f"w{n}-{turn}"})))

        def batch(n: int) -> list[UUID]:
            items = [{"text": "y"}] * 20
            return _while(stopping, lambda turn: parts.accept("batch", json.dumps({"items": items}), lane="bulk"))

        def erase(n: int) -> list[UUID]:
            return _while(
                stopping, lambda turn: parts.accept("erase", json.dumps({"recordId": f"w{n}-{turn}"}), lane="bulk")
            )

        def cancel(n: int) -> list[UUID]:
            def one(turn: int) -> UUID:
                job = parts.accept("write", '{"text": "unwanted"}')
                jobs.cancel(job)
                return job

            return _while(stopping, one)

        def read(n: int) -> list[UUID]:
            _while(stopping, lambda turn: jobs.rows() and journal)
            _while(stopping, lambda turn: listed(jobs, journal) and journal)
            return []

        with ThreadPoolExecutor(10) as pool:
            running = [pool.submit(work, n) for work in (write, batch, erase, cancel, read) for n in range(2)]
            began = time.monotonic()
            until(lambda: time.monotonic() - began > 2, 5)
            stopping.set()
            accepted = [job for future in running for job in future.result(30)]
        assert len(accepted) > 100
        until(lambda: not _unfinished(database), 60, lambda: _unfinished(database))
        ended = [parts.job(job) for job in accepted]
        assert {job.state for job in ended} <= {"succeeded", "failed", "cancelled"}
        failed = {job.row["error"]["type"] for job in ended if job.state == "failed"}
        assert failed <= {"/problems/not-found", "/problems/erased"}
        assert _deadlocks(database) == before
        assert {job.row["attempt"] for job in ended} <= {0, 1}, "a lock cost somebody an attempt"


def _while(stopping: threading.Event, work: Any) -> list[UUID]:
    made: list[UUID] = []
    while not stopping.is_set():
        made.append(work(len(made)))
    return made


def _unfinished(database: TestDatabase) -> list[tuple[Any, ...]]:
    return execute(database.admin, "select kind, state, attempt, run_at from jobs where finished_at is null limit 9")


def _deadlocks(database: TestDatabase) -> int:
    found = execute(database.admin, "select deadlocks from pg_stat_database where datname = current_database()")
    return found[0][0]


# -- the same bytes, by every way -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_s29_e4_any_text_comes_back_as_it_was_by_every_way(jobs: Jobs, journal: UUID, name: str) -> None:
    text = TEXTS[name]
    message = {"role": "user", "content": text}
    ended = write_all(
        jobs,
        {"text": text, "id": "single"},
        {
            "kind": "batch",
            "items": [{"text": text, "id": "batched"}, {"sessionId": "b", "messages": [message], "id": "talk-b"}],
        },
        {"kind": "conversation", "sessionId": "s", "messages": [message], "id": "talk"},
    )
    assert [row["state"] for row in ended] == ["succeeded"] * 3, [row["error"] for row in ended]
    with jobs.database.app.tenant(jobs.tenant) as tx:
        for talk in ("talk", "talk-b"):
            assert get_messages(tx, jobs.tenant, journal, talk)[0]["content"] == text
    data = text.encode()
    for document in ("single", "batched"):
        assert content(jobs, journal, document) == text
        found = [row for row in listed(jobs, journal) if row.get("document") == document]
        assert "".join(content(jobs, journal, row["id"]) for row in found) == text
    for block in ended[0]["result"]["blocks"]:
        assert content(jobs, journal, block["id"]).encode() == data[block["start"] : block["end"]]


@pytest.mark.parametrize("name", REFUSED)
def test_s29_what_cannot_be_kept_is_refused_by_every_way(jobs: Jobs, journal: UUID, name: str) -> None:
    text = REFUSED[name]
    message = {"role": "user", "content": text}
    bodies = [
        ("write", {"text": text}),
        ("conversation", {"sessionId": "s", "messages": [message]}),
        ("batch", {"items": [{"text": text}, {"sessionId": "s", "messages": [message]}]}),
    ]
    accepted = [
        jobs.accept(kind, WRITE, body) for kind, body in bodies
    ]  # json.dumps escapes them: they can be accepted
    commit_writes(jobs.database.app, jobs.claim_writes(accepted[0]), NO_FAULTS)
    rows = [jobs.row(job) for job in accepted]
    assert [row["state"] for row in rows] == ["failed", "failed", "succeeded"]
    problems = [row["error"] for row in rows[:2]] + [item["error"] for item in json.loads(rows[2]["result"])["items"]]
    assert {problem["type"] for problem in problems} == {"/problems/invalid-request"}
    assert listed(jobs, journal) == []


def test_n9_every_way_of_writing_gives_the_same_rows(jobs: Jobs, journal: UUID) -> None:
    text = "The harvest was late. " * 60
    fields = {
        "source": "diary",
        "at": "2019-05-04T23:30:00-02:00",
        "scope": "project",
        "workspaceId": "w",
        "sessionId": "s",
    }
    write_all(
        jobs, {"text": text, **fields, "id": "a"}, {"kind": "batch", "items": [{"text": text, **fields, "id": "b"}]}
    )
    talk = {"messages": [{"role": "user", "content": text, "at": fields["at"]}], "sessionId": "s", "source": "diary"}
    write_all(jobs, {"kind": "conversation", **talk, "id": "c"}, {"kind": "batch", "items": [{**talk, "id": "d"}]})
    for one, other in (("a", "b"), ("c", "d")):
        first, second = (_kept(jobs, name) for name in (one, other))
        assert first == second
    assert all(row[1] == datetime(2019, 5, 5, 1, 30, tzinfo=UTC) for row in _kept(jobs, "a"))


def _kept(jobs: Jobs, document: str) -> list[tuple[Any, ...]]:
    """Everything of a document's rows but its own id, its revision and when it was accepted."""
    columns = "scope, event_at, workspace_id, session_id, date, state, canonical"
    rows = execute(
        jobs.database.admin,
        f"select {columns} from documents where document_id = %s union all "
        f"(select {columns} from records where document_id = %s order by ordinal)",
        document, document,
    )  # fmt: skip
    own = re.compile(rf'"{document}(-b\d+)?"|"[0-9a-f]{{64}}"|"(createdAt|updatedAt)":"[^"]*"')
    return [(*row[:-1], own.sub("#", row[-1])) for row in rows]


def test_the_hash_is_of_the_bytes_that_are_given_back(jobs: Jobs, journal: UUID) -> None:
    result = write_all(jobs, {"text": "naïve ☕ text", "id": "a"})[0]["result"]
    with jobs.database.app.tenant(jobs.tenant) as tx:
        for name, given in (("a", result["document"]["sha256"]), ("a-b0000", result["blocks"][0]["sha256"])):
            record = get_record(tx, jobs.tenant, journal, name)
            assert hashlib.sha256(record.canonical.encode()).hexdigest() == record.sha256 == given


@pytest.mark.parametrize("zone", ["UTC", "US/Pacific", "Asia/Kolkata", "Pacific/Kiritimati", "America/St_Johns"])
def test_m6_the_zone_of_a_process_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, jobs: Jobs, journal: UUID, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        write_all(
            jobs,
            {"text": "a", "id": "a", "at": "2024-03-10T23:30:00-08:00", "scope": "daily"},
            {"text": "b", "id": "b", "at": "2024-03-10T02:30:00+05:30", "scope": "daily"},
        )
    finally:
        monkeypatch.undo()
        time.tzset()
    assert execute(
        jobs.database.admin, "select date, event_at at time zone 'UTC' from documents order by document_id"
    ) == [
        (date(2024, 3, 11), datetime(2024, 3, 11, 7, 30)),  # noqa: DTZ001  as Postgres gives a time without its zone
        (date(2024, 3, 9), datetime(2024, 3, 9, 21, 0)),  # noqa: DTZ001
    ]
    with jobs.database.app.tenant(jobs.tenant) as tx:
        assert '"eventAt":"2024-03-11T07:30:00.000Z"' in get_record(tx, jobs.tenant, journal, "a").canonical


def test_a_past_revision_stays_readable(jobs: Jobs, journal: UUID) -> None:
    write_all(jobs, {"text": "one", "id": "a"}, {"text": "two", "id": "b"})
    with jobs.database.app.tenant(jobs.tenant) as tx:
        assert {row["id"] for row in list_records(tx, jobs.tenant, journal, revision=1)} == {"a", "a-b0000"}


def test_m5_bulk_and_interactive_writes_of_a_store_share_one_line(
    database: TestDatabase, redis_url: str, tenant: UUID
) -> None:
    with fleet(database, redis_url, tenant) as parts:
        parts.submitter()
        accepted = [_either(parts, n) for n in range(20)]
        parts.worker()
        parts.worker("bulk")
        parts.relay()
        ended = parts.wait(accepted)
        revisions = [(job.result or {}).get("revision") or (job.result or {})["items"][0]["revision"] for job in ended]
        assert revisions == list(range(1, 21))


def _either(parts: Fleet, n: int) -> UUID:
    if n % 2:
        return parts.accept("batch", '{"items": [{"text": "x"}]}', lane="bulk")
    return parts.accept("write", '{"text": "x"}')
