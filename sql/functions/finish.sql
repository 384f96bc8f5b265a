-- Ending a claim. Every statement here checks the lease token; false means that the lease was lost and the caller must
-- roll back. The caller has set the tenant when these run inside its transaction; setting it again costs nothing.

-- The last child wakes its parent, whose queue is then the answer. The parent's row lock makes the count exact.
create or replace function child_ended(p_tenant uuid, p_parent uuid) returns text language plpgsql as $$
declare
  v_state text;
  v_queue text;
begin
  update jobs j
     set open_children = j.open_children - 1,
         state = case when j.state = 'waiting' and j.open_children <= 1 then 'queued' else j.state end,
         ready_at = case when j.state = 'waiting' and j.open_children <= 1 then now() else j.ready_at end,
         due_at = case when j.state = 'waiting' and j.open_children <= 1 then j.deadline_at else j.due_at end
   where j.tenant_id = p_tenant and j.job_id = p_parent and j.finished_at is null
  returning j.state, j.queue into v_state, v_queue;
  return case when v_state = 'queued' then v_queue end;
end
$$;

-- One claimed job to its end; the caller has set the tenant. `woken`: the queue of a parent that this was the last child of.
create or replace function end_job(p_tenant uuid, p_job uuid, p_token uuid, p_state text, p_result text, p_error jsonb,
                                   p_reason text, out ended boolean, out queue text, out woken text)
language plpgsql as $$
declare
  v_parent uuid;
begin
  update jobs j
     set state = p_state, finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds), lease_token = null,
         error = p_error, reason = p_reason
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running'
  returning j.parent_id, j.queue into v_parent, queue;
  ended := found;
  if not ended then return; end if;
  if p_result is not null then
    insert into job_results (tenant_id, job_id, result) values (p_tenant, p_job, p_result);
  end if;
  if v_parent is not null then woken := child_ended(p_tenant, v_parent); end if;
end
$$;

-- Whether a tenant has ready jobs on a queue that no wake-up has been sent for.
create or replace function more_ready(p_tenant uuid, p_queue text) returns boolean language plpgsql as $$
begin
  -- In the order of jobs_ready, so that no plan reads anything else.
  return (select true from jobs r where r.queue = p_queue and r.tenant_id = p_tenant and r.state = 'queued'
             and r.sent_at is null and r.run_at is null order by r.queue, r.tenant_id, r.seq limit 1) is not null;
end
$$;

create or replace function finish_job(p_tenant uuid, p_job uuid, p_token uuid, p_state text, p_result text, p_error jsonb,
                                      p_reason text, out ended boolean, out more boolean, out woken text)
language plpgsql as $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_end record;
begin
  v_end := end_job(p_tenant, p_job, p_token, p_state, p_result, p_error, p_reason);
  ended := v_end.ended;
  woken := v_end.woken;
  more := ended and more_ready(p_tenant, v_end.queue);
end
$$;

-- Many of one tenant at once; returns the jobs that really ended.
create or replace function end_jobs(p_tenant uuid, p_jobs uuid[], p_tokens uuid[], p_states text[], p_results text[],
                                    p_errors text[])
returns table (job_id uuid, woken text) language plpgsql as $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_end record;
begin
  for i in 1 .. cardinality(p_jobs) loop
    v_end := end_job(p_tenant, p_jobs[i], p_tokens[i], p_states[i], p_results[i], p_errors[i]::jsonb, null);
    if v_end.ended then
      job_id := p_jobs[i];
      woken := v_end.woken;
      return next;
    end if;
  end loop;
end
$$;

-- Ends jobs of one tenant that only have results and, in the same round trip and commit, claims up to p_limit more of its
-- ready jobs of the kind: one claim and one end a job, at half the cost. Rows with `ended` say what has ended, and whether
-- more was ready; the others are claims (as claim_more). The statements of end_job are written out here: every job passes
-- through, and the call would cost it a tenth of all that Postgres does for it.
create or replace function finish_and_claim(p_tenant uuid, p_jobs uuid[], p_tokens uuid[], p_results text[], p_queue text,
                                            p_kind text, p_owner text, p_lease interval, p_limit integer)
returns table (ended uuid, more boolean, woken text, tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text,
               attempt smallint, max_attempts smallint, lease_token uuid, deadline_at timestamptz, created_at timestamptz,
               waiter text, trace text, payload text, expired boolean)
language plpgsql as $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_durable constant text := current_setting('synchronous_commit');
  v_more constant boolean := more_ready(p_tenant, p_queue);
  v_parent uuid;
  v_set text;
begin
  for i in 1 .. cardinality(p_jobs) loop
    update jobs j
       set state = 'succeeded', finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds),
           lease_token = null, error = null, reason = null
     where j.tenant_id = p_tenant and j.job_id = p_jobs[i] and j.lease_token = p_tokens[i] and j.state = 'running'
    returning j.parent_id into v_parent;
    continue when not found;
    if p_results[i] is not null then
      insert into job_results (tenant_id, job_id, result) values (p_tenant, p_jobs[i], p_results[i]);
    end if;
    ended := p_jobs[i];
    more := v_more;
    woken := case when v_parent is not null then child_ended(p_tenant, v_parent) end;
    return next;
  end loop;
  if not v_more or p_limit = 0 then return; end if;
  return query
  select null::uuid, null::boolean, null::text, c.* from claim_more(p_tenant, p_queue, p_kind, p_owner, p_lease, p_limit) c;
  v_set := set_config('synchronous_commit', v_durable, true);  -- a claim does without it, the ends do not
end
$$;

-- A transient failure: parked for another try, or dead when the attempts are used up. `p_delay` comes from the retry
-- policy (core/jobs/retry.py).
create or replace function retry_job(p_tenant uuid, p_job uuid, p_token uuid, p_error jsonb, p_delay interval)
returns text language plpgsql as $$
declare
  v_state text;
  v_parent uuid;
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = case when j.attempt < j.max_attempts then 'queued' else 'dead' end,
         run_at = case when j.attempt < j.max_attempts then now() + p_delay end,
         due_at = case when j.attempt < j.max_attempts then least(now() + p_delay, j.deadline_at)
                       else now() + make_interval(secs => j.keep_seconds) end,
         finished_at = case when j.attempt < j.max_attempts then null else now() end,
         reason = case when j.attempt < j.max_attempts then 'retry' else 'attempts' end,
         sent_at = null, lease_token = null, error = p_error
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running'
  returning j.state, j.parent_id into v_state, v_parent;
  if v_state = 'dead' and v_parent is not null then perform child_ended(p_tenant, v_parent); end if;
  return v_state;
end
$$;

-- Waits for money or a model: costs no attempt.
create or replace function defer_job(p_tenant uuid, p_job uuid, p_token uuid, p_reason text, p_run_at timestamptz)
returns boolean language plpgsql as $$
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = 'deferred', reason = p_reason, run_at = p_run_at, due_at = least(p_run_at, j.deadline_at),
         attempt = j.attempt - 1, sent_at = null, lease_token = null
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running';
  return found;
end
$$;

-- Lets go of a claim without having tried (a graceful stop): ready again at once, no attempt counted.
create or replace function release_job(p_tenant uuid, p_job uuid, p_token uuid)
returns boolean language plpgsql as $$
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = 'queued', attempt = j.attempt - 1, ready_at = now(), sent_at = null, lease_token = null,
         due_at = j.deadline_at
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running';
  return found;
end
$$;

-- Adds children of a running parent, and says how far it is. The relay sends them.
create or replace function add_children(p_tenant uuid, p_parent uuid, p_token uuid, p_jobs uuid[], p_kind text,
                                        p_queue text, p_payloads text[], p_keep_seconds integer, p_max_attempts smallint,
                                        p_total bigint, p_unit text)
returns boolean language plpgsql as $$
declare
  v_store uuid;
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set open_children = j.open_children + cardinality(p_jobs), progress_total = coalesce(p_total, j.progress_total),
         progress_unit = coalesce(p_unit, j.progress_unit), progress_done = coalesce(j.progress_done, 0)
   where j.tenant_id = p_tenant and j.job_id = p_parent and j.lease_token = p_token and j.state = 'running'
  returning j.store_id into v_store;
  if not found then return false; end if;
  insert into jobs (tenant_id, job_id, store_id, parent_id, kind, queue, max_attempts, payload_bytes, keep_seconds)
  select p_tenant, c.job_id, v_store, p_parent, p_kind, p_queue, p_max_attempts, octet_length(c.payload), p_keep_seconds
    from unnest(p_jobs, p_payloads) with ordinality as c (job_id, payload, n) order by c.n;
  insert into job_payloads (tenant_id, job_id, payload)
  select p_tenant, c.job_id, c.payload from unnest(p_jobs, p_payloads) as c (job_id, payload);
  return true;
end
$$;

-- The parent gives up its thread and its lease until the last child has ended. When all have ended already it is ready.
create or replace function wait_for_children(p_tenant uuid, p_job uuid, p_token uuid)
returns boolean language plpgsql as $$
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = case when j.open_children > 0 then 'waiting' else 'queued' end,
         ready_at = now(), sent_at = null, lease_token = null, attempt = j.attempt - 1, crashes = 0,
         due_at = case when j.open_children > 0 then now() + interval '60 s' end
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running';
  return found;
end
$$;

-- Ends at once what has not ended: effects of a running attempt are discarded by its fence. Open children go too; they are
-- locked before their parent, as by everything that ends a child.
create or replace function cancel_job(p_tenant uuid, p_job uuid)
returns text language plpgsql as $$
declare
  v_state text;
  v_parent uuid;
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  perform from jobs j where j.tenant_id = p_tenant and j.parent_id = p_job and j.finished_at is null
    order by j.job_id for update;
  update jobs j
     set state = 'cancelled', finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds),
         lease_token = null, run_at = null
   where j.tenant_id = p_tenant and j.job_id = p_job and j.finished_at is null
  returning j.state, j.parent_id into v_state, v_parent;
  if not found then
    select j.state into v_state from jobs j where j.tenant_id = p_tenant and j.job_id = p_job;
    return v_state;
  end if;
  if v_parent is not null then perform child_ended(p_tenant, v_parent); end if;
  update jobs j
     set state = 'cancelled', finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds),
         lease_token = null, run_at = null
   where j.tenant_id = p_tenant and j.parent_id = p_job and j.finished_at is null;
  return 'ended';
end
$$;

-- A person gives a dead job a fresh set of attempts.
create or replace function revive_job(p_tenant uuid, p_job uuid)
returns text language plpgsql as $$
declare
  v_state text;
  v_parent uuid;
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = 'queued', attempt = 0, crashes = 0, reason = null, error = null, finished_at = null, ready_at = now(),
         run_at = null, sent_at = null, deadline_at = null, due_at = null
   where j.tenant_id = p_tenant and j.job_id = p_job and j.state = 'dead'
     and exists (select from job_payloads p where p.tenant_id = p_tenant and p.job_id = p_job)
  returning j.parent_id into v_parent;
  if found then
    update jobs j set open_children = j.open_children + 1
     where j.tenant_id = p_tenant and j.job_id = v_parent and j.finished_at is null;
    return 'queued';
  end if;
  select j.state into v_state from jobs j where j.tenant_id = p_tenant and j.job_id = p_job;
  return v_state;
end
$$;
