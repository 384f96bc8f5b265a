"""The job statements one by one: tokens, sweeps, children, retention, and what each does to a row."""

from uuid import UUID

import pytest

from core.ids import uuid7
from core.tenants.tenants import create_tenant
from tests.conftest import TestDatabase
from tests.fakes.jobs import EMBED, Jobs
from tests.rows import execute

HOUR = 3600


@pytest.fixture
def jobs(database: TestDatabase, tenant: UUID) -> Jobs:
    return Jobs(database, tenant)


def test_s43_two_workers_of_one_name_cannot_both_hold_a_job(jobs: Jobs) -> None:
    job = jobs.accept()
    jobs.owner = "same-name"
    first = jobs.claim(job)
    assert first is not None
    assert jobs.claim(job) is None
    jobs.run_out(job)
    assert jobs.sweep() == {job: "lease-lost"}
    second = jobs.claim(job)
    assert second is not None
    assert second.attempt == 2
    assert not jobs.finish(first)
    assert jobs.renew([first]) == set()
    assert jobs.finish(second)


def test_s4_a_stale_owner_blocks_a_store_only_until_its_lease_ends(jobs: Jobs) -> None:
    first, second = (jobs.accept("write", "write.interactive") for _ in range(2))
    jobs.owner = "zombie"
    assert len(jobs.claim_writes(first, limit=1)) == 1
    jobs.owner = "worker-2"
    assert jobs.claim_writes(second) == []
    assert jobs.sweep() == {}
    jobs.run_out(first)
    jobs.sweep()
    assert [claim.job_id for claim in jobs.claim_writes(second)] == [first], "what was tried before goes alone"


def test_d2_writes_lost_with_their_worker_twice_go_one_at_a_time(jobs: Jobs) -> None:
    """Heads of two stores; the wake-up of one must not take what the relay has not let out."""
    execute(
        jobs.database.admin,
        "insert into stores (tenant_id, store_id, name, config, policy_hash) values (%s, %s, 'other', '{}', '')",
        jobs.tenant, uuid7(),
    )  # fmt: skip
    heads = [jobs.accept("write", "write.interactive", store=store) for store in ("journal", "other")]
    for _ in range(2):
        assert [len(jobs.claim_writes(head)) for head in heads] == [1, 1]
        jobs.run_out()
        jobs.sweep()
    assert [jobs.claim_writes(head) for head in heads] == [[], []]
    assert jobs.dispatch("write.interactive") == heads[:1]
    assert [len(jobs.claim_writes(head)) for head in heads] == [1, 0]


def test_a_write_is_not_claimed_while_a_later_one_of_its_claim_runs(jobs: Jobs) -> None:
    """A sweep may free the rows of a claim one by one; the later write would commit before the earlier one."""
    first, second = (jobs.accept("write", "write.interactive", store="journal") for _ in range(2))
    assert [claim.job_id for claim in jobs.claim_writes(first)] == [first, second]
    jobs.run_out(first)
    jobs.sweep()
    assert jobs.states() == {first: "queued", second: "running"}
    assert jobs.claim_writes(first) == []
    jobs.run_out(second)
    jobs.sweep()
    assert [claim.job_id for claim in jobs.claim_writes(first)] == [first]


def test_d2_three_lost_workers_are_the_end(jobs: Jobs) -> None:
    job = jobs.accept(max_attempts=50)
    for crash in (1, 2):
        assert jobs.claim(job)
        jobs.run_out(job)
        assert jobs.sweep() == {job: "lease-lost"}
        assert jobs.row(job)["crashes"] == crash
        assert jobs.dispatch() == [job]
    assert jobs.claim(job)
    jobs.run_out(job)
    assert jobs.sweep() == {job: "dead"}
    row = jobs.row(job)
    assert (row["state"], row["reason"], row["attempt"]) == ("dead", "crashes", 3)
    assert "worker was lost 3 times" in row["error"]["detail"]


def test_d2_jobs_lost_with_their_worker_twice_go_one_at_a_time(jobs: Jobs) -> None:
    suspects = [jobs.accept() for _ in range(3)]
    for job in suspects:
        assert jobs.claim(job)
    jobs.run_out()
    jobs.sweep()
    assert sorted(jobs.dispatch()) == suspects, "after one loss all are tried again"
    for job in suspects:
        assert jobs.claim(job)
    jobs.run_out()
    jobs.sweep()
    assert [jobs.claim(job) for job in suspects] == [None] * 3, "an old wake-up brings them together again"
    innocent = jobs.accept()
    jobs.unsend([innocent])
    sent = jobs.dispatch()
    assert innocent in sent
    assert len(sent) == 2
    assert jobs.dispatch() == [], "a second one was sent while the first is out"
    jobs.run_out()
    jobs.sweep()
    assert set(jobs.dispatch()) == set(sent), "sent again, it is the same one"
    claim = jobs.claim(next(job for job in sent if job != innocent))
    assert claim is not None
    assert jobs.finish(claim)
    assert len(jobs.dispatch()) == 1


def test_a_wake_up_that_nobody_answers_is_owed_again(jobs: Jobs) -> None:
    job = jobs.accept()
    assert jobs.row(job)["sent_at"] is not None
    assert jobs.dispatch() == []
    jobs.run_out(job)
    assert jobs.sweep() == {job: "resend"}
    assert jobs.dispatch() == [job]


def test_a_refused_wake_up_leaves_the_clock_of_a_parked_job_alone(jobs: Jobs) -> None:
    """The push failed after all, and a worker had it already: claimed, failed, parked."""
    job = jobs.accept()
    claim = jobs.claim(job)
    assert claim is not None
    assert jobs.retry(claim) == "queued"
    jobs.unsend([job])
    assert jobs.row(job)["due_at"] is not None
    jobs.run_out(job)
    assert jobs.sweep() == {job: "due"}
    assert jobs.dispatch() == [job]


def test_a_read_whose_deadline_passes_in_the_queue_fails(jobs: Jobs) -> None:
    waiting, claimed = (jobs.accept("read", "read.interactive", store="journal", deadline=45) for _ in range(2))
    jobs.shift(46)
    late = jobs.claim(claimed)
    assert late is not None
    assert late.expired
    assert jobs.sweep()[waiting] == "deadline"
    row = jobs.row(waiting)
    assert (row["state"], row["error"]["type"], row["error"]["status"]) == (
        "failed",
        "/problems/deadline-exceeded",
        504,
    )


def test_a_parent_finds_its_way_when_the_wake_of_its_last_child_was_lost(jobs: Jobs) -> None:
    parent = jobs.accept()
    claim = jobs.claim(parent)
    assert claim is not None
    children = jobs.add_children(claim, 2)
    assert jobs.wait(claim)
    for child in children:
        child_claim = jobs.claim(child)
        assert child_claim is not None
        assert jobs.finish(child_claim)
    execute(
        jobs.database.admin,
        "update jobs set state = 'waiting', open_children = 1, due_at = now() where job_id = %s",
        parent,
    )
    assert jobs.sweep() == {parent: "children-ended"}
    assert jobs.row(parent)["state"] == "queued"
    assert jobs.dispatch() == [parent]


def test_a_parent_whose_children_died_or_were_cancelled_wakes(jobs: Jobs) -> None:
    parent = jobs.accept()
    claim = jobs.claim(parent)
    assert claim is not None
    cancelled, crashed, expired = jobs.add_children(claim, 3)
    assert jobs.wait(claim)
    assert jobs.cancel(cancelled) == "ended"
    execute(jobs.database.admin, "update jobs set max_attempts = 1 where job_id = %s", crashed)
    assert jobs.claim(crashed)
    jobs.run_out(crashed)
    assert jobs.sweep() == {crashed: "dead"}
    assert jobs.row(parent)["state"] == "waiting"
    execute(jobs.database.admin, "update jobs set deadline_at = now(), due_at = now() where job_id = %s", expired)
    assert jobs.sweep() == {expired: "deadline"}
    assert jobs.row(parent)["state"] == "queued"


def test_cancelling_a_parent_ends_its_children(jobs: Jobs) -> None:
    parent = jobs.accept()
    claim = jobs.claim(parent)
    assert claim is not None
    children = jobs.add_children(claim, 3)
    assert jobs.wait(claim)
    running = jobs.claim(children[0])
    assert running is not None
    assert jobs.cancel(parent) == "ended"
    assert set(jobs.states().values()) == {"cancelled"}
    assert not jobs.finish(running)


def test_d3_the_dead_stay_until_a_person_or_the_policy_ends_them(jobs: Jobs) -> None:
    job = jobs.accept(max_attempts=1, keep=HOUR)
    claim = jobs.claim(job)
    assert claim is not None
    assert jobs.retry(claim) == "dead"
    jobs.shift(8 * 24 * HOUR)
    assert jobs.sweep() == {job: "pruned"}
    assert jobs.revive(job) == "queued", "its body was not kept"
    again = jobs.claim(job)
    assert again is not None
    assert (again.attempt, again.payload) == (1, "{}")
    assert jobs.finish(again)


def test_retention_takes_the_body_first_and_the_row_later(jobs: Jobs) -> None:
    job = jobs.accept(keep=HOUR)
    claim = jobs.claim(job)
    assert claim is not None
    jobs.finish(claim, result='{"answer": 1}')
    jobs.shift(HOUR - 60)
    assert jobs.sweep() == {}
    jobs.shift(120)
    assert jobs.sweep() == {job: "pruned"}
    assert jobs.row(job)["result"] is None
    assert execute(jobs.database.admin, "select count(*) from job_payloads") == [(0,)]
    assert jobs.sweep() == {}, "the row's own time has not come"
    jobs.shift(30 * 24 * HOUR)
    assert jobs.sweep() == {job: "pruned"}
    assert jobs.rows() == {}


def test_c4_what_a_job_leaves_behind_does_not_grow(jobs: Jobs) -> None:
    """After 2,000 jobs and their retention no row is left, and the later ones took no more room than the first."""

    def run(count: int) -> int:
        accepted = [jobs.accept("many", keep=1, inflight=0) for _ in range(count)]
        while claims := jobs.claim_more(EMBED, "many", 500):
            jobs.finish_all(claims)
        assert len(accepted) == count
        jobs.shift(31 * 24 * HOUR)
        while jobs.sweep(500):
            pass
        execute(jobs.database.admin, "vacuum jobs, job_payloads, job_results")
        tables = "('jobs', 'job_payloads', 'job_results', 'idempotency_keys', 'processes')"
        return execute(
            jobs.database.admin,
            f"select sum(pg_total_relation_size(oid))::bigint from pg_class where relname in {tables}",
        )[0][0]

    sizes = [run(500) for _ in range(4)]
    assert jobs.rows() == {}
    assert sizes[-1] <= sizes[1] * 1.1, sizes


def test_h14_a_replayed_request_is_one_job(jobs: Jobs) -> None:
    first = [jobs.accepted(key=(f"k{n}", b"body")) for n in range(50)]
    again = [jobs.accepted(key=(f"k{n}", b"body")) for n in range(50)]
    assert {row["outcome"] for row in again} == {"replayed"}
    assert [row["job_id"] for row in again] == [row["job_id"] for row in first]
    assert jobs.accepted(key=("k0", b"another"))["outcome"] == "conflict"
    assert len(jobs.rows()) == 50


def test_a_refused_document_id_does_not_use_up_the_key(jobs: Jobs) -> None:
    execute(
        jobs.database.admin,
        "insert into erasures (tenant_id, store_id, record_id, revision) select tenant_id, store_id, 'taken', 1 from stores",
    )
    refused = jobs.accepted("write", "write.interactive", document="taken", key=("k", b"1"))
    assert refused["outcome"] == "document-exists"
    assert jobs.accepted("write", "write.interactive", document="free", key=("k", b"2"))["outcome"] == "accepted"
    assert jobs.accepted("write", "write.interactive", store="nowhere", key=("n", b"2"))["outcome"] == "unknown-store"


def test_s23_one_tenant_gets_no_more_than_its_share_of_what_is_out(database: TestDatabase, jobs: Jobs) -> None:
    with database.relay.system() as tx:
        light = Jobs(database, create_tenant(tx, "light").id)
    bulk = [jobs.accept(inflight=0) for _ in range(50)]
    few = [light.accept(inflight=0) for _ in range(3)]
    sent = jobs.dispatch(inflight=4)
    assert sorted(sent) == sorted(bulk[:4] + few), "in order of acceptance, four a tenant"
    assert jobs.dispatch(inflight=4) == []
    claim = jobs.claim(bulk[0])
    assert claim is not None
    assert jobs.finish(claim)
    assert jobs.dispatch(inflight=4) == [bulk[4]]


def test_s23_a_tenant_of_many_stores_gets_no_more_heads_out_than_others(database: TestDatabase, jobs: Jobs) -> None:
    heads: list[UUID] = []
    for n in range(10):
        execute(
            database.admin,
            "insert into stores (tenant_id, store_id, name, config, policy_hash) values (%s, %s, %s, '{}', '')",
            jobs.tenant, uuid7(), f"s{n}",
        )  # fmt: skip
        heads.append(jobs.accept("write", "write.bulk", store=f"s{n}"))
        jobs.accept("write", "write.bulk", store=f"s{n}")
    jobs.unsend(heads)
    assert jobs.dispatch("write.bulk", inflight=4) == heads[:4]
    assert jobs.dispatch("write.bulk", inflight=4) == []
    for claim in jobs.claim_writes(heads[0]):
        assert jobs.finish(claim)
    assert jobs.dispatch("write.bulk", inflight=4) == [heads[4]]


def test_a_bounded_batch_of_tenants_starts_behind_the_last(database: TestDatabase, jobs: Jobs) -> None:
    tenants = []
    with database.relay.system() as tx:
        for n in range(6):
            tenants.append(create_tenant(tx, f"t{n}").id)
    for one in tenants:
        Jobs(database, one).accept(inflight=0)
    with database.relay.direct() as tx:
        rows = tx.rows("dispatch_jobs", queue=EMBED, inflight=16, limit=2, after=tenants[3], resend=30)
    assert {row["tenant_id"] for row in rows} == set(tenants[4:])


def test_the_lead_passes_on_and_its_epoch_never_falls(database: TestDatabase) -> None:
    def lead(holder: str) -> int | None:
        with database.relay.direct() as tx:
            return tx.value("lead", name="relay", holder=holder, lease=30)

    assert (lead("a"), lead("a"), lead("b")) == (1, 1, None)
    execute(database.admin, "update leases set lease_until = now() - interval '1 s'")
    assert (lead("b"), lead("a"), lead("b")) == (2, None, 2)
