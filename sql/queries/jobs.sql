-- name: accept_jobs(requests, payloads, resend)
select * from accept_jobs(:requests::jsonb, :payloads::text[], make_interval(secs => :resend));

-- name: accept_jobs_soon(requests, payloads, resend)
-- The same, and what is accepted is seen by all before it is on disk (`job_on_disk`). The setting is read when the transaction
-- ends.
select a.*, case when a.outcome = 'accepted' then set_config('synchronous_commit', 'off', true) end as commits
  from accept_jobs(:requests::jsonb, :payloads::text[], make_interval(secs => :resend)) a;

-- name: job_on_disk(tenant, job)
select job_on_disk(:tenant::uuid, :job::uuid) as done;

-- name: unsend_jobs(tenants, jobs)
select unsend_jobs(:tenants::uuid[], :jobs::uuid[]);

-- name: claim_job(tenant, job, owner, lease)
select c.*, extract(epoch from c.deadline_at - now())::float8 as seconds_left
  from claim_job(:tenant::uuid, :job::uuid, :owner::text, make_interval(secs => :lease)) c;

-- name: claim_more(tenant, queue, kind, owner, lease, limit)
select c.*, extract(epoch from c.deadline_at - now())::float8 as seconds_left
  from claim_more(:tenant::uuid, :queue::text, :kind::text, :owner::text, make_interval(secs => :lease), :limit::integer) c;

-- name: claim_writes(tenant, store, job, owner, lease, limit, bytes)
select c.*, extract(epoch from c.deadline_at - now())::float8 as seconds_left
  from claim_writes(:tenant::uuid, :store::uuid, :job::uuid, :owner::text, make_interval(secs => :lease),
                           :limit::integer, :bytes::bigint) c;

-- name: renew_jobs(tenants, tokens, jobs, lease)
select * from renew_jobs(:tenants::uuid[], :tokens::uuid[], :jobs::uuid[], make_interval(secs => :lease));

-- name: finish_job(tenant, job, token, state, result, error, reason)
select * from finish_job(:tenant::uuid, :job::uuid, :token::uuid, :state::text, :result::text, :error::jsonb, :reason::text);

-- name: end_jobs(tenant, jobs, tokens, states, results, errors)
select * from end_jobs(:tenant::uuid, :jobs::uuid[], :tokens::uuid[], :states::text[], :results::text[], :errors::text[]);

-- name: finish_and_claim(tenant, jobs, tokens, results, queue, kind, owner, lease, limit)
select c.*, extract(epoch from c.deadline_at - now())::float8 as seconds_left
  from finish_and_claim(:tenant::uuid, :jobs::uuid[], :tokens::uuid[], :results::text[], :queue::text, :kind::text,
                               :owner::text, make_interval(secs => :lease), :limit::integer) c;

-- name: retry_job(tenant, job, token, error, delay)
select retry_job(:tenant::uuid, :job::uuid, :token::uuid, :error::jsonb, make_interval(secs => :delay)) as state;

-- name: defer_job(tenant, job, token, reason, run_at)
select defer_job(:tenant::uuid, :job::uuid, :token::uuid, :reason::text, :run_at::timestamptz) as deferred;

-- name: release_job(tenant, job, token)
select release_job(:tenant::uuid, :job::uuid, :token::uuid) as released;

-- name: add_children(tenant, parent, token, jobs, kind, queue, payloads, keep, max_attempts, total, unit)
select add_children(:tenant::uuid, :parent::uuid, :token::uuid, :jobs::uuid[], :kind::text, :queue::text, :payloads::text[],
                    :keep::integer, :max_attempts::smallint, :total::bigint, :unit::text) as added;

-- name: wait_for_children(tenant, job, token)
select wait_for_children(:tenant::uuid, :job::uuid, :token::uuid) as waits;

-- name: cancel_job(tenant, job)
select cancel_job(:tenant::uuid, :job::uuid) as state;

-- name: revive_job(tenant, job)
select revive_job(:tenant::uuid, :job::uuid) as state;

-- name: set_progress(tenant, job, token, done, total, unit)!
update jobs set progress_done = :done, progress_total = :total, progress_unit = :unit
 where tenant_id = :tenant and job_id = :job and lease_token = :token and state = 'running';

-- name: lock_running(tenant, token, jobs)
-- Which of a claim's jobs are still its own, locked until the transaction ends.
select job_id from jobs
 where tenant_id = :tenant and job_id = any (:jobs::uuid[]) and lease_token = :token and state = 'running'
 order by job_id for update;

-- name: get_job(tenant, job)
select j.*, s.name as store, r.result
  from jobs j
  left join stores s on s.tenant_id = j.tenant_id and s.store_id = j.store_id
  left join job_results r on r.tenant_id = j.tenant_id and r.job_id = j.job_id
 where j.tenant_id = :tenant and j.job_id = :job;

-- name: job_payload(tenant, job)
select payload from job_payloads where tenant_id = :tenant and job_id = :job;

-- name: list_jobs(tenant, before, store, limit)
-- Newest first: job ids are time-ordered. With a store it passes over the jobs of the tenant's others. `before` is never null,
-- but the largest id there is: `is null or` could not use the index in a plan that is kept, nor could coalesce() behind
-- row-level security.
select j.*, s.name as store, null::text as result
  from jobs j left join stores s on s.tenant_id = j.tenant_id and s.store_id = j.store_id
 where j.tenant_id = :tenant and j.job_id < :before::uuid
   and (:store::text is null or j.store_id = (select n.store_id from stores n where n.tenant_id = :tenant and n.name = :store))
 order by j.job_id desc limit :limit;

-- name: list_children(tenant, parent, before, states, store, limit)
select j.*, s.name as store, null::text as result
  from jobs j left join stores s on s.tenant_id = j.tenant_id and s.store_id = j.store_id
 where j.tenant_id = :tenant and j.parent_id = :parent
   and j.job_id < :before::uuid
   and (:states::text[] is null or j.state = any (:states::text[]))
   and (:store::text is null or s.name = :store::text)
 order by j.job_id desc limit :limit;

-- name: list_jobs_in(tenant, before, states, store, limit)
-- Jobs in some states, newest first. Most pages are full from the newest rows (`near`); if not, each state has its own way
-- (`far`): the rare ones are indexed, what is queued or runs is at most the tenant's backlog, and jobs that succeeded are
-- most of what there is. Ids come as an array: a join's plan, made while the table was empty, would read all rows later.
with the_store as (select n.store_id from stores n where n.tenant_id = :tenant and n.name = :store::text),
recent as materialized (
  select r.job_id, r.state, r.store_id from jobs r
   where r.tenant_id = :tenant and r.job_id < :before::uuid order by r.job_id desc limit 2000),
near as materialized (
  select r.job_id from recent r
   where r.state = any (:states::text[]) and (:store::text is null or r.store_id = (select n.store_id from the_store n))
   order by r.job_id desc limit :limit),
far as materialized (
  select (select count(*) from recent) = 2000 and (select count(*) from near) < :limit as needed),
rare as (
  select k.job_id from unnest(:states::text[]) as w (state) cross join lateral (
    select r.job_id from jobs r
     where r.tenant_id = :tenant and r.state = w.state and r.state in ('waiting', 'deferred', 'failed', 'cancelled', 'dead')
       and r.job_id < :before::uuid
       and (:store::text is null or r.store_id = (select n.store_id from the_store n))
     order by r.job_id desc limit :limit) k
   where (select f.needed from far f)),
running as materialized (
  select r.job_id, r.store_id from jobs r
   where r.tenant_id = :tenant and r.finished_at is null and r.sent_at is not null and r.state = 'running'
     and 'running' = any (:states::text[]) and (select f.needed from far f)),
queued as materialized (
  select r.job_id, r.store_id from jobs r
   where r.tenant_id = :tenant and r.finished_at is null and r.state = 'queued'
     and 'queued' = any (:states::text[]) and (select f.needed from far f)),
open as (
  select o.job_id from (select * from running union all select * from queued) o
   where o.job_id < :before::uuid
     and (:store::text is null or o.store_id = (select n.store_id from the_store n))
   order by o.job_id desc limit :limit),
succeeded as (
  select r.job_id from jobs r
   where r.tenant_id = :tenant and r.state = 'succeeded' and r.job_id < :before::uuid
     and (:store::text is null or r.store_id = (select n.store_id from the_store n))
     and 'succeeded' = any (:states::text[]) and (select f.needed from far f)
   order by r.job_id desc limit :limit)
select j.*, s.name as store, null::text as result
  from jobs j left join stores s on s.tenant_id = j.tenant_id and s.store_id = j.store_id
 where j.tenant_id = :tenant and j.job_id = any (array(
         select n.job_id from near n union select r.job_id from rare r union select o.job_id from open o
         union select d.job_id from succeeded d))
   and j.state = any (:states::text[])
 order by j.job_id desc limit :limit;

-- name: purge_job(tenant, job)
-- Only what has ended; a row comes back when it was there.
with gone as (
  delete from jobs where tenant_id = :tenant and job_id = :job and finished_at is not null returning tenant_id, job_id),
gone_payload as (
  delete from job_payloads p using gone g where p.tenant_id = g.tenant_id and p.job_id = g.job_id),
gone_result as (
  delete from job_results r using gone g where r.tenant_id = g.tenant_id and r.job_id = g.job_id)
select job_id from gone;

-- name: children_by_state(tenant, parent)
select j.state, count(*) as jobs from jobs j where j.tenant_id = :tenant and j.parent_id = :parent group by j.state;

-- name: children_results(tenant, parent, after, limit)
select j.job_id, j.state, j.error, r.result
  from jobs j left join job_results r on r.tenant_id = j.tenant_id and r.job_id = j.job_id
 where j.tenant_id = :tenant and j.parent_id = :parent and j.job_id > :after order by j.job_id limit :limit;

-- name: tenant_backlog(tenant)
select count(*) as jobs, coalesce(sum(j.payload_bytes), 0)::bigint as bytes,
       (select coalesce(sum(s.stored_bytes), 0) from stores s where s.tenant_id = :tenant)::bigint as stored
  from jobs j where j.tenant_id = :tenant and j.finished_at is null;
