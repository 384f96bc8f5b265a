-- The relay's statements. It runs as muniment_relay, whose policy lets it see every tenant.

-- Leadership: one leads, another takes over when the lease runs out. The epoch rises with each new holder.
create or replace function lead(p_name text, p_holder text, p_lease interval)
returns bigint language sql as $$
  insert into leases as l (name, holder, lease_until) values (p_name, p_holder, now() + p_lease)
  on conflict (name) do update
     set epoch = case when l.holder = p_holder then l.epoch else l.epoch + 1 end, holder = p_holder,
         lease_until = now() + p_lease
   where l.holder = p_holder or l.lease_until < now()
  returning epoch
$$;

-- Picks what to send on one queue: round after round over the tenants that have ready jobs, starting behind p_after,
-- each up to its in-flight limit times its weight. Jobs that were lost with their worker twice go one at a time, so that the
-- one that kills it cannot take the others down a third time; after one loss all are tried again at once, since most workers
-- are killed by something else.
create or replace function dispatch_jobs(p_queue text, p_inflight integer, p_limit integer, p_after uuid,
                                         p_resend interval)
returns table (tenant_id uuid, job_id uuid) language plpgsql
-- Few rows of a large table by their keys: other joins look cheaper only in a plan made while the table was small.
set enable_hashjoin = off set enable_mergejoin = off as $$
begin
  return query
  with recursive ready_tenants as (
    (select r.tenant_id from jobs r
      where r.queue = p_queue and r.state = 'queued' and r.sent_at is null and r.run_at is null
      order by r.tenant_id limit 1)
    union all
    select (select r.tenant_id from jobs r
             where r.queue = p_queue and r.state = 'queued' and r.sent_at is null and r.run_at is null
               and r.tenant_id > t.tenant_id
             order by r.tenant_id limit 1)
      from ready_tenants t where t.tenant_id is not null),
  room as materialized (
    select t.tenant_id,
           p_inflight * n.weight - (select count(*) from (
             select from jobs j where j.tenant_id = t.tenant_id and j.queue = p_queue and j.finished_at is null
                and j.sent_at is not null order by j.sent_at limit p_inflight * n.weight) busy) as free
      from ready_tenants t join tenants n on n.tenant_id = t.tenant_id),
  picked as materialized (
    select c.tenant_id, c.job_id
      from room m
      cross join lateral (
        select r.tenant_id, r.job_id, row_number() over (order by r.seq) as turn
          from jobs r
         where r.queue = p_queue and r.tenant_id = m.tenant_id and r.state = 'queued' and r.sent_at is null
           and r.run_at is null and r.crashes < 2
         order by r.seq limit m.free) c
     where m.free > 0
     order by c.turn, (c.tenant_id <= p_after), c.tenant_id
     limit p_limit),
  suspect as materialized (
    select s.tenant_id, s.job_id from jobs s
     where s.queue = p_queue and s.crashes > 1 and s.finished_at is null and s.sent_at is null and s.state = 'queued'
       and s.run_at is null
       and not exists (select from jobs o where o.queue = p_queue and o.crashes > 1 and o.finished_at is null
                          and o.sent_at is not null)
     order by s.ready_at, s.seq limit 1)
  update jobs j
     set sent_at = now(), due_at = least(now() + p_resend, j.deadline_at)
    from (select * from picked union all select * from suspect) k
   where j.tenant_id = k.tenant_id and j.job_id = k.job_id and j.state = 'queued' and j.sent_at is null
     and j.run_at is null
  returning j.tenant_id, j.job_id;
end
$$;

-- The same for writes, where only the head of a store is sent: a claim takes all that is behind it, and while one is held
-- nothing is sent at all, for its holder looks again. Each step of the recursion jumps to the next store's head; heads that
-- are out already take their tenant's first turns.
create or replace function dispatch_writes(p_queue text, p_inflight integer, p_limit integer, p_after uuid,
                                           p_resend interval)
returns table (tenant_id uuid, job_id uuid) language plpgsql as $$
begin
  return query
  with recursive heads as (
    (select w.tenant_id, w.store_id, w.seq, w.job_id, w.queue, w.crashes, w.sent_at is not null as busy,
            w.state = 'queued' and w.sent_at is null and w.run_at is null as ready
       from jobs w where w.finished_at is null and w.queue in ('write.interactive', 'write.bulk')
      order by w.tenant_id, w.store_id, w.seq limit 1)
    union all
    select n.* from heads h cross join lateral (
      select w.tenant_id, w.store_id, w.seq, w.job_id, w.queue, w.crashes, w.sent_at is not null,
             w.state = 'queued' and w.sent_at is null and w.run_at is null
        from jobs w where w.finished_at is null and w.queue in ('write.interactive', 'write.bulk')
         and (w.tenant_id, w.store_id) > (h.tenant_id, h.store_id)
       order by w.tenant_id, w.store_id, w.seq limit 1) n),
  turns as (
    select h.tenant_id, h.job_id, h.busy,
           row_number() over (partition by h.tenant_id order by h.busy desc, h.seq) as turn, n.weight
      from heads h join tenants n on n.tenant_id = h.tenant_id
     where (h.ready or h.busy) and h.queue = p_queue and h.crashes < 2),
  picked as materialized (
    select t.tenant_id, t.job_id from turns t where not t.busy and t.turn <= p_inflight * t.weight
     order by t.turn, (t.tenant_id <= p_after), t.tenant_id limit p_limit),
  suspect as materialized (
    select h.tenant_id, h.job_id from heads h
     where h.ready and h.queue = p_queue and h.crashes > 1
       and not exists (select from jobs o where o.queue = p_queue and o.crashes > 1 and o.finished_at is null
                          and o.sent_at is not null)
     order by h.seq limit 1)
  update jobs j
     set sent_at = now(), due_at = least(now() + p_resend, j.deadline_at)
    from (select * from picked union all select * from suspect) k
   where j.tenant_id = k.tenant_id and j.job_id = k.job_id and j.state = 'queued' and j.sent_at is null
     and j.run_at is null
  returning j.tenant_id, j.job_id;
end
$$;

-- Whether a parent can be changed now. The sweep holds many rows and so must never wait for one: it comes again soon.
create or replace function parent_is_free(p_tenant uuid, p_parent uuid) returns boolean language plpgsql as $$
begin
  perform from jobs j where j.tenant_id = p_tenant and j.job_id = p_parent for update skip locked;
  return found or not exists (select from jobs j where j.tenant_id = p_tenant and j.job_id = p_parent);
end
$$;

-- Moves every row whose clock has run out to its next state; at most p_limit of them, retention only when nothing else is
-- due: a million rows to prune must not keep one lost lease waiting. Returns what was done, by reason.
--   running   the lease ended: the worker crashed or hangs. Three crashes, or no attempt left: dead
--   queued    a retry's delay is over; or a wake-up was not answered: send again; or a read's deadline has passed
--   deferred  ready again
--   waiting   the children are counted anew, in case a wake-up of the parent was lost
--   finished  retention: first payload and result go, then the row
create or replace function sweep_jobs(p_limit integer, p_max_crashes integer, p_keep_rows interval)
returns table (reason text, queue text, tenant_id uuid, job_id uuid, waiter text, error text) language plpgsql as $$
declare
  v record;
  v_open integer;
  v_over boolean;  -- this ends the job
begin
  for v in
    with urgent as materialized (
      select j.tenant_id, j.job_id, j.state, j.queue, j.run_at, j.sent_at, j.deadline_at, j.attempt, j.max_attempts,
             j.crashes, j.finished_at, j.parent_id, j.waiter, j.keep_seconds
        from jobs j where j.finished_at is null and j.due_at <= now() order by j.due_at limit p_limit
         for update skip locked),
    old as materialized (
      select j.tenant_id, j.job_id, j.state, j.queue, j.run_at, j.sent_at, j.deadline_at, j.attempt, j.max_attempts,
             j.crashes, j.finished_at, j.parent_id, j.waiter, j.keep_seconds
        from jobs j where j.finished_at is not null and j.due_at <= now() order by j.due_at
       limit greatest(p_limit - (select count(*) from urgent), 0) for update skip locked)
    select * from urgent union all select * from old
  loop
    v_over := case when v.state = 'running' then v.crashes + 1 >= p_max_crashes or v.attempt >= v.max_attempts
                   when v.state in ('queued', 'deferred') then coalesce(v.deadline_at <= now(), false)
                   else false end;
    continue when v_over and v.parent_id is not null and not parent_is_free(v.tenant_id, v.parent_id);
    queue := v.queue; tenant_id := v.tenant_id; job_id := v.job_id; waiter := null; error := null;
    if v.state = 'running' then
      if v_over then
        update jobs j set state = 'dead', finished_at = now(), crashes = j.crashes + 1, lease_token = null,
               due_at = now() + make_interval(secs => v.keep_seconds),
               reason = case when j.crashes + 1 >= p_max_crashes then 'crashes' else 'attempts' end,
               error = jsonb_build_object('type', '/problems/job-failed', 'title', 'The job failed', 'status', 500,
                         'detail', format('its worker was lost %s times; attempt %s of %s', j.crashes + 1, j.attempt,
                                          j.max_attempts))
         where j.tenant_id = v.tenant_id and j.job_id = v.job_id
        returning j.error::text into error;
        if v.parent_id is not null then perform child_ended(v.tenant_id, v.parent_id); end if;
        reason := 'dead'; waiter := v.waiter;
      else
        update jobs j set state = 'queued', crashes = j.crashes + 1, lease_token = null, sent_at = null, ready_at = now(),
               due_at = j.deadline_at, reason = 'lease-lost'
         where j.tenant_id = v.tenant_id and j.job_id = v.job_id;
        reason := 'lease-lost';
      end if;
    elsif v.state in ('queued', 'deferred') and v_over then
      update jobs j set state = 'failed', finished_at = now(), run_at = null, reason = 'deadline',
             due_at = now() + make_interval(secs => v.keep_seconds),
             error = jsonb_build_object('type', '/problems/deadline-exceeded', 'title', 'The deadline passed', 'status', 504,
                       'detail', 'the deadline passed before a worker could take the job')
       where j.tenant_id = v.tenant_id and j.job_id = v.job_id
      returning j.error::text into error;
      if v.parent_id is not null then perform child_ended(v.tenant_id, v.parent_id); end if;
      reason := 'deadline'; waiter := v.waiter;
    elsif v.state in ('queued', 'deferred') then
      update jobs j set state = 'queued', run_at = null, sent_at = null, due_at = j.deadline_at,
             ready_at = case when v.run_at is null then j.ready_at else now() end
       where j.tenant_id = v.tenant_id and j.job_id = v.job_id;
      reason := case when v.run_at is null then 'resend' else 'due' end;
    elsif v.state = 'waiting' then
      select count(*) into v_open from jobs c
       where c.tenant_id = v.tenant_id and c.parent_id = v.job_id and c.finished_at is null;
      update jobs j set open_children = v_open, state = case when v_open = 0 then 'queued' else 'waiting' end,
             ready_at = case when v_open = 0 then now() else j.ready_at end,
             due_at = case when v_open = 0 then j.deadline_at else now() + interval '60 s' end
       where j.tenant_id = v.tenant_id and j.job_id = v.job_id;
      reason := case when v_open = 0 then 'children-ended' else 'children-open' end;
    elsif now() < v.finished_at + p_keep_rows then
      -- A dead job keeps its payload as long as its row: a person may still retry it.
      delete from job_results r where r.tenant_id = v.tenant_id and r.job_id = v.job_id;
      if v.state <> 'dead' then
        delete from job_payloads p where p.tenant_id = v.tenant_id and p.job_id = v.job_id;
      end if;
      update jobs j set due_at = v.finished_at + p_keep_rows where j.tenant_id = v.tenant_id and j.job_id = v.job_id;
      reason := 'pruned';
    else
      delete from job_results r where r.tenant_id = v.tenant_id and r.job_id = v.job_id;
      delete from job_payloads p where p.tenant_id = v.tenant_id and p.job_id = v.job_id;
      delete from jobs j where j.tenant_id = v.tenant_id and j.job_id = v.job_id;
      reason := 'pruned';
    end if;
    return next;
  end loop;
end
$$;
