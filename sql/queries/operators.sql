-- What operators do to the queues, across tenants: all of it runs as muniment_relay.

-- name: dead_jobs(queue, tenant, after_time, after_job, limit)
-- Oldest death first.
select j.*, s.name as store, null::text as result
  from jobs j left join stores s on s.tenant_id = j.tenant_id and s.store_id = j.store_id
 where j.queue = :queue and j.state = 'dead' and (:tenant::uuid is null or j.tenant_id = :tenant::uuid)
   and (:after_time::timestamptz is null or (j.finished_at, j.job_id) > (:after_time::timestamptz, :after_job::uuid))
 order by j.finished_at, j.job_id limit :limit;

-- name: revive_dead(queue, tenant, job, limit)
select d.job_id, revive_job(d.tenant_id, d.job_id) as state
  from (select j.tenant_id, j.job_id from jobs j
         where j.queue = :queue and j.state = 'dead' and (:tenant::uuid is null or j.tenant_id = :tenant::uuid)
           and (:job::uuid is null or j.job_id = :job::uuid)
         order by j.finished_at, j.job_id limit :limit for update skip locked) d;

-- name: purge_dead(queue, tenant, job, limit)
with gone as (
  delete from jobs where (tenant_id, job_id) in (
    select j.tenant_id, j.job_id from jobs j
     where j.queue = :queue and j.state = 'dead' and (:tenant::uuid is null or j.tenant_id = :tenant::uuid)
       and (:job::uuid is null or j.job_id = :job::uuid)
     order by j.finished_at, j.job_id limit :limit for update skip locked)
  returning tenant_id, job_id),
gone_payload as (
  delete from job_payloads p using gone g where p.tenant_id = g.tenant_id and p.job_id = g.job_id),
gone_result as (
  delete from job_results r using gone g where r.tenant_id = g.tenant_id and r.job_id = g.job_id)
select job_id from gone;
