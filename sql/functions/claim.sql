-- Claiming: `running`, attempt + 1, a fresh token, a lease. No row means that somebody else has it (architecture.md §1).
-- Settings are made in declarations: an expression costs next to nothing, a PERFORM is a query with all that belongs to one.

-- One job by its key: what a wake-up names. A job that was lost with its worker twice is claimed only once the relay has let
-- it out, one at a time (dispatch_jobs): old wake-ups of several would bring them together again.
create or replace function claim_job(p_tenant uuid, p_job uuid, p_owner text, p_lease interval)
returns table (tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint,
               lease_token uuid, deadline_at timestamptz, created_at timestamptz, waiter text, trace text, payload text,
               expired boolean)
language plpgsql as $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_durable constant text := set_config('synchronous_commit', 'off', true);
begin
  return query
  update jobs j
     set state = 'running', attempt = j.attempt + 1, lease_token = gen_random_uuid(), lease_owner = p_owner,
         started_at = now(), sent_at = coalesce(j.sent_at, now()), due_at = now() + p_lease
    from job_payloads p
   where j.tenant_id = p_tenant and j.job_id = p_job and j.state = 'queued' and j.run_at is null
     and (j.crashes < 2 or j.sent_at is not null)
     and p.tenant_id = p_tenant and p.job_id = p_job
  returning j.tenant_id, j.job_id, j.store_id, j.kind, j.queue, j.attempt, j.max_attempts, j.lease_token, j.deadline_at,
            j.created_at, j.waiter, j.trace, p.payload, j.deadline_at <= now();
end
$$;

-- Up to p_limit more of a tenant's ready jobs of one kind that have no wake-up of their own. The picked rows are
-- materialised: otherwise the planner may update more rows than the limit. They come as an array: a join's plan, made
-- while the table was empty, would walk all of the tenant's rows for as long as the session lives.
create or replace function claim_more(p_tenant uuid, p_queue text, p_kind text, p_owner text, p_lease interval,
                                      p_limit integer)
returns table (tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint,
               lease_token uuid, deadline_at timestamptz, created_at timestamptz, waiter text, trace text, payload text,
               expired boolean)
language plpgsql as $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_durable constant text := set_config('synchronous_commit', 'off', true);
begin
  return query
  with picked as materialized (
    select r.job_id from jobs r
     where r.queue = p_queue and r.tenant_id = p_tenant and r.state = 'queued' and r.sent_at is null and r.run_at is null
       and r.kind = p_kind and r.crashes = 0
     order by r.seq limit p_limit for update skip locked)
  update jobs j
     set state = 'running', attempt = j.attempt + 1, lease_token = gen_random_uuid(), lease_owner = p_owner,
         started_at = now(), sent_at = now(), due_at = now() + p_lease
    from job_payloads p
   where j.tenant_id = p_tenant and j.job_id = any (array(select k.job_id from picked k))
     and p.tenant_id = p_tenant and p.job_id = j.job_id
  returning j.tenant_id, j.job_id, j.store_id, j.kind, j.queue, j.attempt, j.max_attempts, j.lease_token, j.deadline_at,
            j.created_at, j.waiter, j.trace, p.payload, j.deadline_at <= now();
end
$$;

-- All queued writes of the store of one job, in order of acceptance, under one token; one claim a store at a time. The
-- store's row lock makes two claims wait for each other, so a wake-up that finds the store held can be forgotten: the
-- holder looks again after its commit. Nothing overtakes a write that is parked for another try, and a write that was
-- tried before is claimed alone, so that what kills its worker takes no neighbour along (failure-cases.md D2).
create or replace function claim_writes(p_tenant uuid, p_store uuid, p_job uuid, p_owner text, p_lease interval,
                                        p_limit integer, p_bytes bigint)
returns table (tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint,
               lease_token uuid, deadline_at timestamptz, created_at timestamptz, waiter text, trace text, payload text,
               expired boolean)
language plpgsql as $$
declare
  v_store uuid := p_store;
  v_token uuid := gen_random_uuid();
  v_row record;
  v_picked uuid[] := '{}';
  v_bytes bigint := 0;
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_durable constant text := set_config('synchronous_commit', 'off', true);
begin
  if v_store is null then
    select j.store_id into v_store from jobs j where j.tenant_id = p_tenant and j.job_id = p_job and j.state = 'queued';
  end if;
  if v_store is null then return; end if;
  perform from stores s where s.tenant_id = p_tenant and s.store_id = v_store for update;
  if not found then
    -- The store was erased after this write was accepted.
    update jobs j
       set state = 'failed', finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds), reason = 'store-erased',
           error = jsonb_build_object('type', '/problems/not-found', 'title', 'There is no such thing', 'status', 404,
                                      'detail', 'the store was erased')
     where j.tenant_id = p_tenant and j.job_id = p_job and j.state = 'queued';
    return;
  end if;

  for v_row in
    select w.job_id, w.state, w.run_at, w.sent_at, w.attempt, w.crashes, w.payload_bytes from jobs w
     where w.tenant_id = p_tenant and w.store_id = v_store and w.finished_at is null
       and w.queue in ('write.interactive', 'write.bulk')
     order by w.seq
  loop
    -- A running row means a claim is held, or that the sweep has yet to free a dead one.
    exit when v_row.state <> 'queued' or v_row.run_at is not null or (v_row.crashes > 1 and v_row.sent_at is null);
    exit when cardinality(v_picked) > 0
      and (cardinality(v_picked) >= p_limit or v_bytes + v_row.payload_bytes > p_bytes or v_row.attempt > 0);
    v_picked := v_picked || v_row.job_id;
    v_bytes := v_bytes + v_row.payload_bytes;
    exit when v_row.attempt > 0;
  end loop;
  if cardinality(v_picked) = 0 then return; end if;
  -- A later write may still run: the sweep frees the rows of a dead claim one by one. What was claimed first commits first.
  if exists (select from jobs w
              where w.tenant_id = p_tenant and w.store_id = v_store and w.finished_at is null and w.state = 'running'
                and w.queue in ('write.interactive', 'write.bulk')) then
    return;
  end if;

  return query
  with claimed as (
    update jobs j
       set state = 'running', attempt = j.attempt + 1, lease_token = v_token, lease_owner = p_owner, started_at = now(),
           sent_at = coalesce(j.sent_at, now()), due_at = now() + p_lease
     where j.tenant_id = p_tenant and j.job_id = any (v_picked)
       and j.state = 'queued'  -- a cancellation may have committed since the row was picked
    returning j.*)
  select c.tenant_id, c.job_id, c.store_id, c.kind, c.queue, c.attempt, c.max_attempts, c.lease_token, c.deadline_at,
         c.created_at, c.waiter, c.trace, p.payload, c.deadline_at <= now()
    from claimed c join job_payloads p on p.tenant_id = p_tenant and p.job_id = c.job_id
   order by c.seq;
end
$$;

-- Renews what is still ours; a pair that does not come back is lost, and its work must not be committed. A row that is
-- locked is passed over: its own commit or the sweep is about to end the claim, and a renewal that waited for one row would
-- hold up all others, or deadlock with a commit that takes the same rows in another order.
create or replace function renew_jobs(p_tenants uuid[], p_tokens uuid[], p_jobs uuid[], p_lease interval)
returns table (job_id uuid) language plpgsql as $$
begin
  for i in 1 .. cardinality(p_jobs) loop
    perform set_config('muniment.tenant', p_tenants[i]::text, true);
    return query
    with free as materialized (
      select r.job_id from jobs r
       where r.tenant_id = p_tenants[i] and r.job_id = p_jobs[i] and r.lease_token = p_tokens[i] and r.state = 'running'
         for no key update skip locked)
    update jobs j set due_at = now() + p_lease
     where j.tenant_id = p_tenants[i] and j.job_id = (select f.job_id from free f)
    returning j.job_id;
  end loop;
end
$$;
