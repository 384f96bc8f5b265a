-- name: lead(name, holder, lease)
select lead(:name::text, :holder::text, make_interval(secs => :lease)) as epoch;

-- name: resign(name, holder)!
update leases set lease_until = now() - interval '1 s' where name = :name and holder = :holder;

-- name: ready_queues(queues)
-- Queues with rows that may be sent: an idle round of the relay asks only this.
select q.queue from unnest(:queues::text[]) as q (queue)
 where exists (select from jobs r where r.queue = q.queue and r.state = 'queued' and r.sent_at is null
                  and r.run_at is null);

-- name: dispatch_jobs(queue, inflight, limit, after, resend)
select * from dispatch_jobs(:queue::text, :inflight::integer, :limit::integer, :after::uuid, make_interval(secs => :resend));

-- name: dispatch_writes(queue, inflight, limit, after, resend)
select * from dispatch_writes(:queue::text, :inflight::integer, :limit::integer, :after::uuid, make_interval(secs => :resend));

-- name: unsend(tenants, jobs)!
-- Not what was claimed all the same and is parked by now.
update jobs j set sent_at = null, due_at = j.deadline_at
  from unnest(:tenants::uuid[], :jobs::uuid[]) as k (tenant_id, job_id)
 where j.tenant_id = k.tenant_id and j.job_id = k.job_id and j.state = 'queued' and j.run_at is null;

-- name: sweep_jobs(limit, max_crashes, keep_days)
select * from sweep_jobs(:limit::integer, :max_crashes::integer, make_interval(secs => :keep_days * 86400.0));

-- name: queue_waits(lease, renew)
-- Of what runs now, by queue: the 95th percentile of seconds between sending and claiming. Running rows are those whose
-- lease was renewed lately: after a kill the others are its dead, whose wake-ups may have waited for the one before.
select j.queue, percentile_disc(0.95) within group (order by extract(epoch from j.started_at - j.sent_at))::float8 as seconds
  from jobs j
 where j.finished_at is null and j.due_at between now() + make_interval(secs => :lease - :renew) and now() + make_interval(secs => :lease)
   and j.state = 'running'
 group by j.queue;

-- name: prune_idempotency_keys(hours, limit)!
delete from idempotency_keys where ctid = any (array(
  select ctid from idempotency_keys where created_at < now() - make_interval(secs => :hours * 3600.0) limit :limit));

-- name: prune_uploads(hours, limit)!
-- Bytes of imports that ended, or that nobody has touched, longer ago than the setting, and what was noted of them.
with gone as (
delete from uploads u where u.ctid = any (array(
  select c.ctid from uploads c join imports i on i.tenant_id = c.tenant_id and i.import_id = c.import_id
   where i.updated_at < now() - make_interval(secs => :hours * 3600.0) 
     and (i.state not in ('running', 'paused')
          or (i.state = 'running' and not exists (select from jobs j where j.tenant_id = i.tenant_id and j.job_id = i.job_id
                                                     and j.finished_at is null)))
   limit :limit))
returning u.tenant_id, u.import_id)
delete from import_ids k using gone g where k.tenant_id = g.tenant_id and k.import_id = g.import_id;

-- name: report_process(process, role, host, pid, queues, keys, jobs_done, clock)!
insert into processes as p (process_id, role, host, pid, queues, key_envs, jobs_done, clock_skew_ms)
values (:process, :role, :host, :pid, :queues::text[], :keys::text[], :jobs_done,
        (extract(epoch from :clock::timestamptz - now()) * 1000)::integer)
on conflict (process_id) do update
   set seen_at = now(), jobs_done = excluded.jobs_done, clock_skew_ms = excluded.clock_skew_ms;

-- name: forget_process(process)!
delete from processes where process_id = :process;

-- name: reap_process(process)
-- Only for a process that is dead beyond doubt. What it held is swept at once.
select reap_process(:process::uuid) as claims;

-- name: prune_processes()!
delete from processes where seen_at < now() - interval '1 hour';

-- name: prune_breakers()!
-- While calls come, one of them tries every 20 s: nobody calls this endpoint any more, so nobody would ever close its circuit.
delete from breakers where open_until < now() - interval '1 hour';

-- name: processes()
select process_id, role, host, pid, queues, key_envs, started_at, seen_at, jobs_done, clock_skew_ms,
       extract(epoch from now() - seen_at)::float8 as silent_seconds
  from processes order by role, started_at;

-- name: backlog()
select * from backlog;

-- name: wake_deferred(reason, limit)
-- The money is there again: what waits for it need not wait for its time. The relay's sweep takes them in their turn.
update jobs j set due_at = now(), run_at = now()
 where j.ctid = any (array(select k.ctid from jobs k where k.finished_at is null and k.state = 'deferred' and k.reason = :reason
                            limit :limit for update skip locked))
returning j.job_id;
