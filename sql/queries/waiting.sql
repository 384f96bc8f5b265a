-- name: ended_jobs(tenant, jobs)
-- Those of the jobs that somebody waits for and that have ended, with their answers.
select j.job_id, j.state, j.error, r.result
  from jobs j left join job_results r on r.tenant_id = j.tenant_id and r.job_id = j.job_id
 where j.tenant_id = :tenant and j.job_id = any (:jobs::uuid[]) and j.finished_at is not null;

-- name: answered_with_202(tenant, route, key)!
-- From now on a repetition gets the 202 again, whatever the job does.
update idempotency_keys set answered = 202 where tenant_id = :tenant and route = :route and key = :key;

-- name: use_key(tenant, route, key, hash, job)
-- A row comes back on the first use of the key. A second use at the same time waits for the first to end.
insert into idempotency_keys (tenant_id, route, key, body_sha256, job_id, answered)
values (:tenant, :route, :key, :hash, :job, 200)
on conflict (tenant_id, route, key) do nothing returning job_id;

-- name: used_key(tenant, route, key)
select body_sha256, job_id from idempotency_keys where tenant_id = :tenant and route = :route and key = :key;
