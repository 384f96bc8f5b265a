-- What the exporter sees: aggregates only, computed by the database clock. The views belong to the owner, whose `system`
-- policy shows them every tenant.

-- One pass over the unfinished jobs. "Ready" is what could run now: a write behind a parked one cannot, since nothing
-- overtakes it, and counts as parked with it. "Unsent" is what is owed a wake-up and has none; most jobs of a long backlog
-- are owed none: only the first unfinished write of a store is, and of other jobs as many as the tenant may have in flight.
-- The limits come from the settings muniment.inflight_* of the transaction (core/jobs/backlog.py).
create or replace view backlog as
with unfinished as materialized (
  select tenant_id, queue, store_id, seq, state, ready_at, run_at, sent_at, started_at,
         queue in ('write.interactive', 'write.bulk') as is_write
    from jobs where finished_at is null),
heads as (
  select tenant_id, store_id, min(seq) as head, min(seq) filter (where run_at is not null) as parked
    from unfinished where is_write group by tenant_id, store_id),
busy as (
  select tenant_id, queue, count(*) as jobs from unfinished where sent_at is not null group by tenant_id, queue),
limits as (
  select tenant_id, lane, weight * setting as jobs
    from tenants,
         (values ('interactive', coalesce(nullif(current_setting('muniment.inflight_interactive', true), ''), '16')::integer),
                 ('bulk', coalesce(nullif(current_setting('muniment.inflight_bulk', true), ''), '4')::integer))
           as s (lane, setting)),
judged as (
  select u.queue, u.state, u.ready_at, u.started_at, r.ready,
         r.ready and u.sent_at is null
           and case when u.is_write then u.seq = h.head else coalesce(b.jobs, 0) < l.jobs end as owed
    from unfinished u
    left join heads h on u.is_write and h.tenant_id = u.tenant_id and h.store_id = u.store_id
    left join busy b on b.tenant_id = u.tenant_id and b.queue = u.queue
    left join limits l on l.tenant_id = u.tenant_id and l.lane = split_part(u.queue, '.', 2)
    cross join lateral (
      select u.state = 'queued' and u.run_at is null and (h.parked is null or u.seq < h.parked) as ready) r),
counted as (
  select queue,
         count(*) filter (where ready) as ready_jobs,
         min(ready_at) filter (where ready) as oldest_ready,
         min(ready_at) filter (where owed) as oldest_unsent,
         count(*) filter (where state = 'running') as inflight_jobs,
         min(started_at) filter (where state = 'running') as oldest_running,
         count(*) filter (where state = 'queued' and not ready) as parked_jobs,
         count(*) filter (where state = 'deferred') as deferred_jobs,
         count(*) filter (where state = 'waiting') as waiting_jobs
    from judged group by queue),
dead as (
  select queue, count(*) as dead_jobs from jobs where state = 'dead' group by queue)
select q.queue,
       coalesce(c.ready_jobs, 0) as ready_jobs,
       greatest(coalesce(extract(epoch from now() - c.oldest_ready), 0), 0)::float8 as ready_oldest_age_seconds,
       greatest(coalesce(extract(epoch from now() - c.oldest_unsent), 0), 0)::float8 as unsent_oldest_age_seconds,
       coalesce(c.inflight_jobs, 0) as inflight_jobs,
       greatest(coalesce(extract(epoch from now() - c.oldest_running), 0), 0)::float8 as inflight_oldest_age_seconds,
       coalesce(c.parked_jobs, 0) as parked_jobs,
       coalesce(c.deferred_jobs, 0) as deferred_jobs,
       coalesce(c.waiting_jobs, 0) as waiting_jobs,
       coalesce(d.dead_jobs, 0) as dead_jobs
  from unnest(array['write.interactive', 'write.bulk', 'read.interactive', 'extract.interactive', 'extract.bulk',
                    'link.interactive', 'link.bulk', 'embed.interactive', 'embed.bulk', 'import.bulk']) as q (queue)
  left join counted c on c.queue = q.queue
  left join dead d on d.queue = q.queue;
alter view backlog owner to muniment_owner;

create or replace view process_counts as
select role, count(*) filter (where seen_at > now() - interval '30 s') as alive,
       max(abs(clock_skew_ms)) filter (where seen_at > now() - interval '30 s') as clock_skew_ms
  from processes group by role;
alter view process_counts owner to muniment_owner;

grant select on backlog, process_counts to muniment_exporter, muniment_relay;
