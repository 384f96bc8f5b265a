-- What the migrations and functions add up to, as pg_dump writes it. Made by `make schema`; compared in CI.

CREATE SCHEMA public;

COMMENT ON SCHEMA public IS 'standard public schema';

CREATE FUNCTION public.accept_jobs(p_requests jsonb, p_payloads text[], p_resend interval) RETURNS TABLE(ord integer, outcome text, job_id uuid, answered smallint, send boolean, created_at timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
declare
  r record;
  v_store uuid;
  v_known record;
  v_deadline timestamptz;
  v_set text;  -- an expression costs next to nothing, a PERFORM is a query with all that belongs to one
begin
  ord := -1;
  created_at := now();
  for r in
    select * from jsonb_to_recordset(p_requests) as q (
      tenant uuid, job uuid, store text, kind text, queue text, document text, deadline integer, keep integer,
      attempts smallint, waiter text, trace text, route text, key text, body text, answered smallint, inflight integer)
  loop
    v_set := set_config('muniment.tenant', r.tenant::text, true);
    ord := ord + 1; job_id := r.job; answered := null; send := false;

    v_store := null;
    if r.store is not null then
      select s.store_id into v_store from stores s where s.tenant_id = r.tenant and s.name = r.store;
      if v_store is null then
        outcome := 'unknown-store'; return next; continue;
      end if;
    end if;

    if r.key is not null then
      insert into idempotency_keys as k (tenant_id, route, key, body_sha256, job_id, answered)
      values (r.tenant, r.route, r.key, decode(r.body, 'hex'), r.job, r.answered)
      on conflict (tenant_id, route, key) do nothing;
      if not found then
        select k.job_id, k.answered, k.body_sha256 into v_known
          from idempotency_keys k where k.tenant_id = r.tenant and k.route = r.route and k.key = r.key;
        outcome := case when v_known.body_sha256 = decode(r.body, 'hex') then 'replayed' else 'conflict' end;
        job_id := v_known.job_id; answered := v_known.answered;
        -- The row may be newer than the disk: whoever is told of it waits, by this transaction's own commit.
        v_set := pg_logical_emit_message(true, 'muniment', '')::text;
        return next; continue;
      end if;
    end if;

    -- The tests are nested: one condition with all of them would start the executor for the subqueries every time.
    if r.document is not null then
      if exists (select from documents d where d.tenant_id = r.tenant and d.store_id = v_store
                    and d.document_id = r.document)
         or exists (select from records e where e.tenant_id = r.tenant and e.store_id = v_store
                       and e.record_id = r.document)
         or exists (select from erasures e where e.tenant_id = r.tenant and e.store_id = v_store
                       and e.record_id = r.document) then
        if r.key is not null then
          delete from idempotency_keys k where k.tenant_id = r.tenant and k.route = r.route and k.key = r.key;
        end if;
        outcome := 'document-exists'; return next; continue;
      end if;
    end if;

    if r.queue like 'write.%' then
      send := not exists (
        select from jobs j where j.tenant_id = r.tenant and j.store_id = v_store and j.finished_at is null
           and j.queue in ('write.interactive', 'write.bulk'));
    else
      send := (select count(*) from (
        select from jobs j where j.tenant_id = r.tenant and j.queue = r.queue and j.finished_at is null
           and j.sent_at is not null order by j.sent_at limit r.inflight) busy) < r.inflight;  -- jobs_open has this order
    end if;
    v_deadline := now() + make_interval(secs => r.deadline);
    insert into jobs (tenant_id, job_id, store_id, kind, queue, max_attempts, payload_bytes, keep_seconds, waiter, trace,
                      deadline_at, sent_at, due_at)
    values (r.tenant, r.job, v_store, r.kind, r.queue, r.attempts, octet_length(p_payloads[ord + 1]), r.keep, r.waiter,
            r.trace, v_deadline, case when send then now() end,
            case when send then least(now() + p_resend, v_deadline) else v_deadline end);
    insert into job_payloads (tenant_id, job_id, payload) values (r.tenant, r.job, p_payloads[ord + 1]);
    outcome := 'accepted';
    return next;
  end loop;
end
$$;

CREATE FUNCTION public.add_calls(p_circuits text[], p_calls integer[]) RETURNS void
    LANGUAGE sql
    AS $$
  delete from circuit_counts
   where (circuit, moment) in (
     select o.circuit, o.moment from circuit_counts o
      where o.moment < floor(extract(epoch from now()) * 10) - 1200
      order by o.circuit, o.moment limit 1000 for update skip locked);
  insert into circuit_counts as c (circuit, moment, calls)
  select n.circuit, floor(extract(epoch from now()) * 10), n.calls
    from unnest(p_circuits, p_calls) as n (circuit, calls) order by n.circuit
  on conflict (circuit, moment) do update set calls = c.calls + excluded.calls
$$;

CREATE FUNCTION public.add_children(p_tenant uuid, p_parent uuid, p_token uuid, p_jobs uuid[], p_kind text, p_queue text, p_payloads text[], p_keep_seconds integer, p_max_attempts smallint, p_total bigint, p_unit text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.authenticate(p_key_hash bytea) RETURNS TABLE(tenant_id uuid, key_id uuid, scopes text[], stores text[], weight smallint, max_queued_jobs integer, max_queued_bytes bigint, max_stored_bytes bigint, max_requests_per_second integer)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public'
    AS $$
  select k.tenant_id, k.key_id, k.scopes, k.stores, t.weight, t.max_queued_jobs, t.max_queued_bytes, t.max_stored_bytes,
         t.max_requests_per_second
    from public.api_keys k join public.tenants t on t.tenant_id = k.tenant_id
   where k.key_hash = p_key_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
  union all
  select null, o.key_id, array['operator'], null, null, null, null, null, null
    from public.operator_keys o
   where o.key_hash = p_key_hash and o.revoked_at is null and (o.expires_at is null or o.expires_at > now())
$$;

CREATE FUNCTION public.breaker_failed(p_circuit text, p_threshold integer, p_open interval) RETURNS TABLE(failures integer, open_left double precision)
    LANGUAGE sql
    AS $$
  insert into breakers as b (circuit, failures, open_until)
  values (p_circuit, 1, case when p_threshold <= 1 then now() + p_open end)
  on conflict (circuit) do update
     set failures = b.failures + 1,
         open_until = case when b.failures + 1 < p_threshold then null
                           when b.open_until > now() then b.open_until
                           else now() + p_open end
  returning b.failures, extract(epoch from b.open_until - now())::double precision
$$;

CREATE FUNCTION public.breaker_trial(p_circuit text, p_holder text, p_trial interval) RETURNS boolean
    LANGUAGE sql
    AS $$
  with tried as (
    update breakers set trial_until = now() + p_trial, holder = p_holder
     where circuit = p_circuit and open_until <= now() and (trial_until is null or trial_until <= now())
    returning circuit)
  select exists (select from tried)
$$;

CREATE TABLE public.budget_entries (
    tenant_id uuid NOT NULL,
    entry_id uuid NOT NULL,
    provider text NOT NULL,
    store_id uuid,
    job_id uuid,
    stage text NOT NULL,
    call_class text NOT NULL,
    state text NOT NULL,
    outcome text,
    reserve bigint DEFAULT 0 NOT NULL,
    input_estimate bigint DEFAULT 0 NOT NULL,
    cost bigint DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    owner uuid,
    sliced boolean DEFAULT false NOT NULL,
    reply_until timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY public.budget_entries FORCE ROW LEVEL SECURITY;

CREATE FUNCTION public.budget_add_usage(e public.budget_entries, p_calls integer, p_failed integer, p_cached integer, p_input bigint, p_output bigint, p_cost bigint) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  insert into budget_usage as u (tenant_id, day, provider, store_id, stage, call_class, calls, failed, cached, input_tokens,
                                 output_tokens, cost)
  values (e.tenant_id, (e.created_at at time zone 'UTC')::date, e.provider,
          coalesce(e.store_id, '00000000-0000-0000-0000-000000000000'), e.stage, e.call_class, p_calls, p_failed,
          p_cached, p_input, p_output, p_cost)
  on conflict (tenant_id, day, provider, store_id, stage, call_class) do update
     set calls = u.calls + p_calls, failed = u.failed + p_failed, cached = u.cached + p_cached,
         input_tokens = u.input_tokens + p_input, output_tokens = u.output_tokens + p_output, cost = u.cost + p_cost;
end
$$;

CREATE FUNCTION public.budget_count(p_entries uuid[], p_tenants uuid[], p_providers text[], p_stores uuid[], p_jobs uuid[], p_stages text[], p_classes text[], p_outcomes text[], p_inputs bigint[], p_outputs bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  c record;
  e budget_entries;
begin
  perform set_config('synchronous_commit', 'off', true);
  for c in
    select * from unnest(p_entries, p_tenants, p_providers, p_stores, p_jobs, p_stages, p_classes, p_outcomes, p_inputs,
                         p_outputs)
             as u (entry, tenant, provider, store, job, stage, class, outcome, input, output)
     order by u.tenant, u.provider, u.store, u.stage, u.class
  loop
    perform set_config('muniment.tenant', c.tenant::text, true);
    insert into budget_entries (tenant_id, entry_id, provider, store_id, job_id, stage, call_class, state, outcome,
                                input_tokens, output_tokens, ended_at)
    values (c.tenant, c.entry, c.provider, c.store, c.job, c.stage, c.class, 'counted', c.outcome, c.input, c.output, now())
    on conflict do nothing returning * into e;
    if found then
      perform budget_add_usage(e, 1, (c.outcome not in ('ok', 'cached'))::integer, (c.outcome = 'cached')::integer,
                               c.input, c.output, 0);
    end if;
  end loop;
end
$$;

CREATE FUNCTION public.budget_finish(p_provider text, p_sliced boolean, p_entries uuid[], p_tenants uuid[], p_states text[], p_outcomes text[], p_costs bigint[], p_inputs bigint[], p_outputs bigint[]) RETURNS TABLE(entry_id uuid, outcome text)
    LANGUAGE plpgsql
    AS $$
declare
  c record;
  e budget_entries;
  v_tenant uuid;
  v_cost bigint;
  v_new boolean;
  v_spent bigint := 0;
  v_freed bigint := 0;
  v_over bigint;
begin
  perform set_config('synchronous_commit', 'off', true);
  if not p_sliced then perform from budget_accounts a where a.provider = p_provider for update; end if;
  for c in
    select * from unnest(p_entries, p_tenants, p_states, p_outcomes, p_costs, p_inputs, p_outputs)
      with ordinality as u (entry, tenant, state, outcome, cost, input, output, n) order by u.tenant, u.n
  loop
    if c.tenant is distinct from v_tenant then
      v_tenant := c.tenant;
      perform set_config('muniment.tenant', v_tenant::text, true);
      if p_sliced then
        perform from budget_spenders t
          where t.tenant_id = v_tenant and t.scope = 'tenant' and t.scope_id = v_tenant and t.provider = p_provider for update;
      end if;
    end if;
    entry_id := c.entry;
    select * into e from budget_entries b where b.tenant_id = c.tenant and b.entry_id = c.entry for update;
    if not found then
      outcome := 'unknown';
      return next; continue;
    end if;
    outcome := 'ended';
    if e.state = 'reserved' or (e.state = 'estimated' and c.state <> 'estimated') then
      v_new := e.state = 'reserved';
      v_cost := case c.state when 'settled' then c.cost when 'estimated' then e.input_estimate else 0 end;
      update budget_entries b
         set state = c.state, outcome = c.outcome, cost = v_cost, input_tokens = c.input, output_tokens = c.output,
             ended_at = coalesce(b.ended_at, now())
       where b.tenant_id = c.tenant and b.entry_id = c.entry;
      -- A job without a row has no cap and needs none.
      update budget_spenders s
         set spent = s.spent + v_cost - e.cost, reserved = s.reserved - case when v_new then e.reserve else 0 end
       where s.tenant_id = c.tenant and s.provider = p_provider
         and (s.scope, s.scope_id) in (('tenant', c.tenant), ('store', e.store_id), ('job', e.job_id));
      perform budget_add_usage(e, v_new::integer, (c.outcome <> 'ok')::integer - (not v_new)::integer, 0,
                               c.input - e.input_tokens, c.output - e.output_tokens, v_cost - e.cost);
      if e.sliced then
        update budget_slices s
           set spent = s.spent + v_cost - e.cost, reserved = s.reserved - case when v_new then e.reserve else 0 end
         where s.provider = p_provider and s.process_id = e.owner and s.reads = (e.call_class = 'read')
        returning s.spent + s.reserved - s.size into v_over;
        if not found then
          v_spent := v_spent + v_cost - e.cost;  -- the slice has gone back, this entry's estimate in it
        elsif v_over > 0 then  -- the meter said more than was reserved
          update budget_accounts a set leased = a.leased + v_over where a.provider = p_provider;
          update budget_slices s set size = s.size + v_over
           where s.provider = p_provider and s.process_id = e.owner and s.reads = (e.call_class = 'read');
        end if;
      else
        v_spent := v_spent + v_cost - e.cost;
        v_freed := v_freed + case when v_new then e.reserve else 0 end;
      end if;
    end if;
    return next;
  end loop;
  if v_spent <> 0 or v_freed <> 0 then
    update budget_accounts a set spent = a.spent + v_spent, reserved = a.reserved - v_freed
     where a.provider = p_provider;
  end if;
end
$$;

CREATE FUNCTION public.budget_limit(p_cap bigint, p_reads boolean) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$
  select case when p_reads then p_cap else p_cap - (p_cap + 9) / 10 end
$$;

CREATE FUNCTION public.budget_open(p_tenant uuid, p_store uuid, p_job uuid, p_provider text) RETURNS void
    LANGUAGE sql
    AS $$
  insert into budget_spenders (tenant_id, scope, scope_id, provider)
  select p_tenant, n.scope, n.id, p_provider from (values ('tenant', p_tenant), ('store', p_store)) as n (scope, id)
   where n.id is not null
  on conflict do nothing;
  insert into budget_spenders (tenant_id, scope, scope_id, provider, spent, reserved)
  select p_tenant, 'job', p_job, p_provider, coalesce(sum(e.cost), 0),
         coalesce(sum(e.reserve) filter (where e.state = 'reserved'), 0)
    from budget_entries e
   where p_job is not null and e.tenant_id = p_tenant and e.job_id = p_job and e.provider = p_provider
  having p_job is not null
  on conflict do nothing;
$$;

CREATE FUNCTION public.budget_reserve(p_owner uuid, p_provider text, p_part double precision, p_entries uuid[], p_tenants uuid[], p_stores uuid[], p_jobs uuid[], p_stages text[], p_classes text[], p_reserves bigint[], p_inputs bigint[], p_replies double precision[]) RETURNS TABLE(entry_id uuid, outcome text, reads_only boolean)
    LANGUAGE plpgsql
    AS $$
declare
  c record;
  s record;
  a budget_accounts;
  v_tenant uuid;
  v_reads boolean;
  v_rows integer;
  v_job_cap bigint;
  v_job_used bigint;
  v_used bigint;
  v_taken bigint := 0;
begin
  perform set_config('synchronous_commit', 'off', true);
  if not exists (select from process_leases l where l.process_id = p_owner and l.lease_until > now()) then
    return query select u.id, 'lease-lost', false from unnest(p_entries) as u (id);
    return;
  end if;
  if p_part > 0 then
    select * into a from budget_accounts b where b.provider = p_provider;
  else
    select * into a from budget_accounts b where b.provider = p_provider for update;
  end if;
  if not found then
    return query select u.id, 'no-account', false from unnest(p_entries) as u (id);
    return;
  end if;
  for c in
    select * from unnest(p_entries, p_tenants, p_stores, p_jobs, p_stages, p_classes, p_reserves, p_inputs, p_replies)
      with ordinality as u (entry, tenant, store, job, stage, class, reserve, input, reply, n) order by u.tenant, u.n
  loop
    if c.tenant is distinct from v_tenant then
      v_tenant := c.tenant;
      perform set_config('muniment.tenant', v_tenant::text, true);
      if p_part > 0 then
        perform from budget_spenders t
          where t.tenant_id = v_tenant and t.scope = 'tenant' and t.scope_id = v_tenant and t.provider = p_provider for update;
      end if;
    end if;
    entry_id := c.entry; reads_only := false; outcome := null;
    v_reads := c.class = 'read';

    -- First it is added, then looked at; what finds no room is taken off again.
    for attempt in 1 .. 2 loop
      v_rows := 0; v_job_cap := a.job_cap; v_job_used := null; outcome := null; reads_only := false;
      for s in
        update budget_spenders b set reserved = b.reserved + c.reserve
         where b.tenant_id = c.tenant and b.provider = p_provider
           and (b.scope, b.scope_id) in (('tenant', c.tenant), ('store', c.store), ('job', c.job))
        returning b.scope, b.cap, b.job_cap, b.spent + b.reserved as used
      loop
        v_rows := v_rows + 1;
        if s.scope = 'job' then
          v_job_used := s.used;
        else
          v_job_cap := least(v_job_cap, s.job_cap);
          if s.used > budget_limit(s.cap, v_reads) and (outcome is null or s.scope = 'store') then
            outcome := s.scope; reads_only := s.used <= s.cap;
          end if;
        end if;
      end loop;
      exit when v_rows >= 1 + (c.store is not null)::integer
            and (v_job_used is not null or c.job is null or v_job_cap is null);
      perform budget_undo(c.tenant, c.store, c.job, p_provider, c.reserve);
      perform budget_open(c.tenant, c.store, case when v_job_cap is not null then c.job end, p_provider);
    end loop;
    if v_job_used > v_job_cap then
      outcome := 'job'; reads_only := false;
    end if;
    if outcome is null and p_part > 0 then
      if budget_take_slice(p_owner, p_provider, v_reads, c.reserve, p_part) is null then
        select b.spent + b.reserved + b.leased into v_used from budget_accounts b where b.provider = p_provider;
        outcome := 'provider'; reads_only := v_used + c.reserve <= a.cap;
      end if;
    elsif outcome is null then
      v_used := a.spent + a.reserved + a.leased + v_taken + c.reserve;
      if v_used > budget_limit(a.cap, v_reads) then
        outcome := 'provider'; reads_only := v_used <= a.cap;
      else
        v_taken := v_taken + c.reserve;
      end if;
    end if;
    if outcome is not null then
      perform budget_undo(c.tenant, c.store, c.job, p_provider, c.reserve);
      return next; continue;
    end if;

    insert into budget_entries (tenant_id, entry_id, provider, store_id, job_id, stage, call_class, state, reserve,
                                input_estimate, owner, sliced, reply_until)
    values (c.tenant, c.entry, p_provider, c.store, c.job, c.stage, c.class, 'reserved', c.reserve, c.input, p_owner,
            p_part > 0, clock_timestamp() + make_interval(secs => c.reply))
    on conflict do nothing;
    outcome := 'reserved';
    if not found then  -- the same request again
      perform budget_undo(c.tenant, c.store, c.job, p_provider, c.reserve);
      if p_part > 0 then
        update budget_slices b set reserved = b.reserved - c.reserve
         where b.provider = p_provider and b.process_id = p_owner and b.reads = v_reads;
      else
        v_taken := v_taken - c.reserve;
      end if;
      select case when e.state = 'reserved' then 'reserved' else 'ended' end into outcome from budget_entries e
       where e.tenant_id = c.tenant and e.entry_id = c.entry;
    end if;
    return next;
  end loop;
  if v_taken > 0 then
    update budget_accounts b set reserved = b.reserved + v_taken where b.provider = p_provider;
  end if;
end
$$;

CREATE FUNCTION public.budget_return_slices(p_owner uuid, p_idle interval) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  s budget_slices;
begin
  for s in
    select * from budget_slices c
     where c.process_id = p_owner and c.used_at <= now() - p_idle order by c.provider, c.reads for update
  loop
    update budget_accounts a set spent = a.spent + s.spent, leased = a.leased - (s.size - s.reserved)
     where a.provider = s.provider;
    update budget_slices c set size = s.reserved, spent = 0
     where c.provider = s.provider and c.process_id = s.process_id and c.reads = s.reads;
    delete from budget_slices c
     where c.provider = s.provider and c.process_id = s.process_id and c.reads = s.reads and c.size = 0 and c.spent = 0;
  end loop;
end
$$;

CREATE FUNCTION public.budget_settle_dead(p_limit integer) RETURNS TABLE(tenant_id uuid, entry_id uuid, provider text, cost bigint)
    LANGUAGE plpgsql
    AS $$
declare
  v_provider text;
  v_sliced boolean;
  v_entries uuid[];
  v_tenants uuid[];
  s budget_slices;
begin
  -- One statement, so that an owner that comes back meanwhile leaves either all of it or nothing.
  select d.provider, d.sliced, array_agg(d.entry_id), array_agg(d.tenant_id)
    into v_provider, v_sliced, v_entries, v_tenants
    from (select e.provider, e.sliced, e.entry_id, e.tenant_id from budget_entries e
           where e.state = 'reserved' and (e.reply_until is null or e.reply_until <= now())
             and not exists (select from process_leases l where l.process_id = e.owner and l.lease_until > now())
           limit p_limit) d
   group by d.provider, d.sliced limit 1;
  if found then
    perform budget_finish(v_provider, v_sliced, v_entries, v_tenants, array_fill('estimated'::text, array[cardinality(v_entries)]),
                          array_fill('owner-lost'::text, array[cardinality(v_entries)]),
                          array_fill(0::bigint, array[cardinality(v_entries)]), array_fill(0::bigint, array[cardinality(v_entries)]),
                          array_fill(0::bigint, array[cardinality(v_entries)]));
    -- One that was settled by its owner at this very moment is none of ours.
    return query
    select e.tenant_id, e.entry_id, e.provider, e.cost
      from unnest(v_tenants, v_entries) as k (tenant_id, entry_id)
      join budget_entries e on e.tenant_id = k.tenant_id and e.entry_id = k.entry_id
     where e.state = 'estimated';
    return;
  end if;
  for s in
    select c.* from budget_slices c
     where c.reserved = 0 and not exists (select from process_leases l where l.process_id = c.process_id and l.lease_until > now())
     order by c.provider, c.process_id, c.reads for update
  loop
    update budget_accounts a set spent = a.spent + s.spent, leased = a.leased - s.size where a.provider = s.provider;
    delete from budget_slices c
     where c.provider = s.provider and c.process_id = s.process_id and c.reads = s.reads;
  end loop;
  delete from inflight_shares i
   where not exists (select from process_leases l where l.process_id = i.process_id and l.lease_until > now());
  delete from process_leases l where l.lease_until < now() - interval '1 hour';
end
$$;

CREATE FUNCTION public.budget_take_slice(p_owner uuid, p_provider text, p_reads boolean, p_amount bigint, p_part double precision) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  s budget_slices;
  a budget_accounts;
  v_missing bigint;
  v_room bigint;
  v_more bigint;
begin
  insert into budget_slices (provider, process_id, reads) values (p_provider, p_owner, p_reads) on conflict do nothing;
  select * into s from budget_slices c
   where c.provider = p_provider and c.process_id = p_owner and c.reads = p_reads for update;
  v_missing := p_amount - (s.size - s.spent - s.reserved);
  if v_missing <= 0 then
    -- What is in a slice is within the cap of its time: one that was lowered since, or reads in the last tenth, stop it too.
    select * into a from budget_accounts c where c.provider = p_provider;
    if a.spent + a.reserved + a.leased > budget_limit(a.cap, p_reads) then return null; end if;
    update budget_slices c set reserved = c.reserved + p_amount, used_at = now()
     where c.provider = p_provider and c.process_id = p_owner and c.reads = p_reads;
    return true;
  end if;
  select * into a from budget_accounts c where c.provider = p_provider for update;
  v_room := budget_limit(a.cap, p_reads) - a.spent - a.reserved - a.leased;
  if v_room < v_missing then return null; end if;
  -- Half of what is left at most: the last of it must not lie in one hand.
  v_more := greatest(v_missing, least((a.cap * p_part)::bigint, v_room / 2));
  update budget_accounts c set spent = c.spent + s.spent, leased = c.leased - s.spent + v_more
   where c.provider = p_provider;
  update budget_slices c
     set size = c.size - s.spent + v_more, spent = 0, reserved = c.reserved + p_amount, used_at = now()
   where c.provider = p_provider and c.process_id = p_owner and c.reads = p_reads;
  return true;
end
$$;

CREATE FUNCTION public.budget_undo(p_tenant uuid, p_store uuid, p_job uuid, p_provider text, p_reserved bigint) RETURNS void
    LANGUAGE sql
    AS $$
  update budget_spenders s set reserved = s.reserved - p_reserved
   where s.tenant_id = p_tenant and s.provider = p_provider
     and (s.scope, s.scope_id) in (('tenant', p_tenant), ('store', p_store), ('job', p_job))
$$;

CREATE FUNCTION public.budget_unended(p_entries uuid[], p_tenants uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql
    AS $$
declare
  v_tenant uuid;
begin
  for v_tenant in select distinct u.tenant from unnest(p_tenants) as u (tenant) loop
    perform set_config('muniment.tenant', v_tenant::text, true);
    -- As an array: a join's plan, made while the ledger was empty, would walk all of the tenant's entries.
    return query
    select e.entry_id from budget_entries e
     where e.tenant_id = v_tenant and e.state = 'reserved'
       and e.entry_id = any (array(select u.entry from unnest(p_entries, p_tenants) as u (entry, tenant)
                                    where u.tenant = v_tenant));
  end loop;
end
$$;

CREATE FUNCTION public.cancel_job(p_tenant uuid, p_job uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.child_ended(p_tenant uuid, p_parent uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim_job(p_tenant uuid, p_job uuid, p_owner text, p_lease interval) RETURNS TABLE(tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint, lease_token uuid, deadline_at timestamp with time zone, created_at timestamp with time zone, waiter text, trace text, payload text, expired boolean)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim_more(p_tenant uuid, p_queue text, p_kind text, p_owner text, p_lease interval, p_limit integer) RETURNS TABLE(tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint, lease_token uuid, deadline_at timestamp with time zone, created_at timestamp with time zone, waiter text, trace text, payload text, expired boolean)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.claim_writes(p_tenant uuid, p_store uuid, p_job uuid, p_owner text, p_lease interval, p_limit integer, p_bytes bigint) RETURNS TABLE(tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint, lease_token uuid, deadline_at timestamp with time zone, created_at timestamp with time zone, waiter text, trace text, payload text, expired boolean)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.defer_job(p_tenant uuid, p_job uuid, p_token uuid, p_reason text, p_run_at timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = 'deferred', reason = p_reason, run_at = p_run_at, due_at = least(p_run_at, j.deadline_at),
         attempt = j.attempt - 1, sent_at = null, lease_token = null
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running';
  return found;
end
$$;

CREATE FUNCTION public.dispatch_jobs(p_queue text, p_inflight integer, p_limit integer, p_after uuid, p_resend interval) RETURNS TABLE(tenant_id uuid, job_id uuid)
    LANGUAGE plpgsql
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
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

CREATE FUNCTION public.dispatch_writes(p_queue text, p_inflight integer, p_limit integer, p_after uuid, p_resend interval) RETURNS TABLE(tenant_id uuid, job_id uuid)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.end_job(p_tenant uuid, p_job uuid, p_token uuid, p_state text, p_result text, p_error jsonb, p_reason text, OUT ended boolean, OUT queue text, OUT woken text) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.end_jobs(p_tenant uuid, p_jobs uuid[], p_tokens uuid[], p_states text[], p_results text[], p_errors text[]) RETURNS TABLE(job_id uuid, woken text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.finish_and_claim(p_tenant uuid, p_jobs uuid[], p_tokens uuid[], p_results text[], p_queue text, p_kind text, p_owner text, p_lease interval, p_limit integer) RETURNS TABLE(ended uuid, more boolean, woken text, tenant_id uuid, job_id uuid, store_id uuid, kind text, queue text, attempt smallint, max_attempts smallint, lease_token uuid, deadline_at timestamp with time zone, created_at timestamp with time zone, waiter text, trace text, payload text, expired boolean)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.finish_job(p_tenant uuid, p_job uuid, p_token uuid, p_state text, p_result text, p_error jsonb, p_reason text, OUT ended boolean, OUT more boolean, OUT woken text) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.inflight_rebalance(p_process uuid, p_providers text[], p_classes text[], p_caps integer[], p_shares integer[], p_wanted integer[]) RETURNS TABLE(provider text, call_class text, share integer, target integer)
    LANGUAGE plpgsql
    AS $$
declare
  c record;
  o record;
  v_held integer;
  v_others integer;
  v_left integer;
  v_sharers integer;
  v_fair integer;
begin
  perform set_config('synchronous_commit', 'off', true);
  for c in
    select * from unnest(p_providers, p_classes, p_caps, p_shares, p_wanted) as u (provider, class, cap, share, wanted)
     order by u.provider, u.class
  loop
    perform pg_advisory_xact_lock(hashtextextended('muniment.inflight ' || c.provider || ' ' || c.class, 0));
    if not exists (select from process_leases l where l.process_id = p_process and l.lease_until > now()) then return; end if;
    select i.share into v_held from inflight_shares i
     where i.provider = c.provider and i.call_class = c.class and i.process_id = p_process;
    v_held := least(coalesce(v_held, 0), c.share);
    -- By need, an equal part at most; what nobody needs is lent out by half, the rest is for who comes next. The order among
    -- equals changes every two seconds, so that with fewer slots than processes each has its turn.
    target := 0; v_left := c.cap; v_others := 0;
    select count(*) + 1 into v_sharers from inflight_shares i join process_leases l on l.process_id = i.process_id
     where i.provider = c.provider and i.call_class = c.class and l.lease_until > now() and i.process_id <> p_process;
    v_fair := v_sharers;
    for o in
      select * from (
        select i.process_id, i.share, i.wanted from inflight_shares i join process_leases l on l.process_id = i.process_id
         where i.provider = c.provider and i.call_class = c.class and l.lease_until > now() and i.process_id <> p_process
        union all select p_process, v_held, c.wanted) p
       order by p.wanted, md5(p.process_id::text || floor(extract(epoch from now()) / 2)::text)
    loop
      if o.process_id = p_process then
        target := least(o.wanted, v_left / v_sharers);
      else
        v_others := v_others + o.share;
      end if;
      v_left := v_left - least(o.wanted, v_left / v_sharers);
      v_sharers := v_sharers - 1;
    end loop;
    target := target + v_left / (2 * v_fair);
    provider := c.provider; call_class := c.class;
    share := greatest(v_held, least(target, c.cap - v_others));
    insert into inflight_shares as i (provider, call_class, process_id, share, wanted)
    values (c.provider, c.class, p_process, share, c.wanted)
    on conflict on constraint inflight_shares_pkey do update set share = excluded.share, wanted = excluded.wanted;
    return next;
  end loop;
end
$$;

CREATE FUNCTION public.job_on_disk(p_tenant uuid, p_job uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  v_tenant constant text := set_config('muniment.tenant', p_tenant::text, true);
  v_place constant pg_lsn := pg_logical_emit_message(true, 'muniment', '');  -- its commit comes after all before it
begin
  return exists (select from jobs j where j.tenant_id = p_tenant and j.job_id = p_job);
end
$$;

CREATE FUNCTION public.lead(p_name text, p_holder text, p_lease interval) RETURNS bigint
    LANGUAGE sql
    AS $$
  insert into leases as l (name, holder, lease_until) values (p_name, p_holder, now() + p_lease)
  on conflict (name) do update
     set epoch = case when l.holder = p_holder then l.epoch else l.epoch + 1 end, holder = p_holder,
         lease_until = now() + p_lease
   where l.holder = p_holder or l.lease_until < now()
  returning epoch
$$;

CREATE FUNCTION public.more_ready(p_tenant uuid, p_queue text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  -- In the order of jobs_ready, so that no plan reads anything else.
  return (select true from jobs r where r.queue = p_queue and r.tenant_id = p_tenant and r.state = 'queued'
             and r.sent_at is null and r.run_at is null order by r.queue, r.tenant_id, r.seq limit 1) is not null;
end
$$;

CREATE FUNCTION public.parent_is_free(p_tenant uuid, p_parent uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform from jobs j where j.tenant_id = p_tenant and j.job_id = p_parent for update skip locked;
  return found or not exists (select from jobs j where j.tenant_id = p_tenant and j.job_id = p_parent);
end
$$;

CREATE FUNCTION public.reap_process(p_process uuid) RETURNS integer
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    AS $$
declare
  v_owner text;  -- as the keeper names itself (workers/keeper.py)
  v_claims integer;
begin
  delete from processes p where p.process_id = p_process
  returning p.host || ':' || p.pid || ':' || right(replace(p.process_id::text, '-', ''), 8) into v_owner;
  if v_owner is null then return 0; end if;
  with held as materialized (
    select j.tenant_id, j.job_id from jobs j
     where j.finished_at is null and j.due_at > now() and j.state = 'running' and j.lease_owner = v_owner
     order by j.parent_id is null, j.job_id for no key update)
  update jobs j set due_at = now() from held h where j.tenant_id = h.tenant_id and j.job_id = h.job_id;
  get diagnostics v_claims = row_count;
  return v_claims;
end
$$;

CREATE FUNCTION public.release_job(p_tenant uuid, p_job uuid, p_token uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform set_config('muniment.tenant', p_tenant::text, true);
  update jobs j
     set state = 'queued', attempt = j.attempt - 1, ready_at = now(), sent_at = null, lease_token = null,
         due_at = j.deadline_at
   where j.tenant_id = p_tenant and j.job_id = p_job and j.lease_token = p_token and j.state = 'running';
  return found;
end
$$;

CREATE FUNCTION public.renew_jobs(p_tenants uuid[], p_tokens uuid[], p_jobs uuid[], p_lease interval) RETURNS TABLE(job_id uuid)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.retry_job(p_tenant uuid, p_job uuid, p_token uuid, p_error jsonb, p_delay interval) RETURNS text
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.revive_job(p_tenant uuid, p_job uuid) RETURNS text
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.sweep_jobs(p_limit integer, p_max_crashes integer, p_keep_rows interval) RETURNS TABLE(reason text, queue text, tenant_id uuid, job_id uuid, waiter text, error text)
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.take_retry(p_circuit text, p_share double precision, p_always integer) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  moment_now bigint;
  begun bigint;
  retried bigint;
  recent bigint;
begin
  perform pg_advisory_xact_lock(hashtextextended('retry ' || p_circuit, 0));
  moment_now := floor(extract(epoch from clock_timestamp()) * 10);
  select coalesce(sum(c.calls), 0), coalesce(sum(c.retries), 0),
         coalesce(sum(c.retries) filter (where c.moment >= moment_now - 10), 0)
    into begun, retried, recent
    from circuit_counts c where c.circuit = p_circuit and c.moment > moment_now - 600;
  if recent >= p_always and retried + 1 > p_share * begun then
    return false;
  end if;
  insert into circuit_counts as c (circuit, moment, retries) values (p_circuit, moment_now, 1)
  on conflict (circuit, moment) do update set retries = c.retries + 1;
  return true;
end
$$;

CREATE FUNCTION public.unsend_jobs(p_tenants uuid[], p_jobs uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  for i in 1 .. cardinality(p_jobs) loop
    perform set_config('muniment.tenant', p_tenants[i]::text, true);
    update jobs j set sent_at = null, due_at = j.deadline_at
     where j.tenant_id = p_tenants[i] and j.job_id = p_jobs[i] and j.state = 'queued' and j.run_at is null;
  end loop;
end
$$;

CREATE FUNCTION public.wait_for_children(p_tenant uuid, p_job uuid, p_token uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
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

CREATE TABLE public.api_keys (
    tenant_id uuid NOT NULL,
    key_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    stores text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);

ALTER TABLE ONLY public.api_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE public.jobs (
    tenant_id uuid NOT NULL,
    job_id uuid NOT NULL,
    seq bigint NOT NULL,
    store_id uuid,
    parent_id uuid,
    kind text NOT NULL,
    queue text NOT NULL,
    state text DEFAULT 'queued'::text NOT NULL,
    reason text,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts smallint DEFAULT 5 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ready_at timestamp with time zone DEFAULT now() NOT NULL,
    run_at timestamp with time zone,
    sent_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    deadline_at timestamp with time zone,
    due_at timestamp with time zone,
    lease_token uuid,
    lease_owner text,
    open_children integer DEFAULT 0 NOT NULL,
    progress_done bigint,
    progress_total bigint,
    progress_unit text,
    payload_bytes integer NOT NULL,
    keep_seconds integer DEFAULT 86400 NOT NULL,
    waiter text,
    error jsonb,
    trace text,
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['queued'::text, 'running'::text, 'waiting'::text, 'deferred'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text, 'dead'::text])))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY public.jobs FORCE ROW LEVEL SECURITY;

CREATE TABLE public.tenants (
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    weight smallint DEFAULT 1 NOT NULL,
    max_queued_jobs integer DEFAULT 100000 NOT NULL,
    max_queued_bytes bigint DEFAULT 1073741824 NOT NULL,
    max_stored_bytes bigint,
    max_requests_per_second integer,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT tenants_weight_check CHECK (((weight >= 1) AND (weight <= 100)))
);

CREATE VIEW public.backlog AS
 WITH unfinished AS MATERIALIZED (
         SELECT jobs.tenant_id,
            jobs.queue,
            jobs.store_id,
            jobs.seq,
            jobs.state,
            jobs.ready_at,
            jobs.run_at,
            jobs.sent_at,
            jobs.started_at,
            (jobs.queue = ANY (ARRAY['write.interactive'::text, 'write.bulk'::text])) AS is_write
           FROM public.jobs
          WHERE (jobs.finished_at IS NULL)
        ), heads AS (
         SELECT unfinished.tenant_id,
            unfinished.store_id,
            min(unfinished.seq) AS head,
            min(unfinished.seq) FILTER (WHERE (unfinished.run_at IS NOT NULL)) AS parked
           FROM unfinished
          WHERE unfinished.is_write
          GROUP BY unfinished.tenant_id, unfinished.store_id
        ), busy AS (
         SELECT unfinished.tenant_id,
            unfinished.queue,
            count(*) AS jobs
           FROM unfinished
          WHERE (unfinished.sent_at IS NOT NULL)
          GROUP BY unfinished.tenant_id, unfinished.queue
        ), limits AS (
         SELECT tenants.tenant_id,
            s.lane,
            (tenants.weight * s.setting) AS jobs
           FROM public.tenants,
            ( VALUES ('interactive'::text,(COALESCE(NULLIF(current_setting('muniment.inflight_interactive'::text, true), ''::text), '16'::text))::integer), ('bulk'::text,(COALESCE(NULLIF(current_setting('muniment.inflight_bulk'::text, true), ''::text), '4'::text))::integer)) s(lane, setting)
        ), judged AS (
         SELECT u.queue,
            u.state,
            u.ready_at,
            u.started_at,
            r.ready,
            (r.ready AND (u.sent_at IS NULL) AND
                CASE
                    WHEN u.is_write THEN (u.seq = h.head)
                    ELSE (COALESCE(b.jobs, (0)::bigint) < l.jobs)
                END) AS owed
           FROM ((((unfinished u
             LEFT JOIN heads h ON ((u.is_write AND (h.tenant_id = u.tenant_id) AND (h.store_id = u.store_id))))
             LEFT JOIN busy b ON (((b.tenant_id = u.tenant_id) AND (b.queue = u.queue))))
             LEFT JOIN limits l ON (((l.tenant_id = u.tenant_id) AND (l.lane = split_part(u.queue, '.'::text, 2)))))
             CROSS JOIN LATERAL ( SELECT ((u.state = 'queued'::text) AND (u.run_at IS NULL) AND ((h.parked IS NULL) OR (u.seq < h.parked))) AS ready) r)
        ), counted AS (
         SELECT judged.queue,
            count(*) FILTER (WHERE judged.ready) AS ready_jobs,
            min(judged.ready_at) FILTER (WHERE judged.ready) AS oldest_ready,
            min(judged.ready_at) FILTER (WHERE judged.owed) AS oldest_unsent,
            count(*) FILTER (WHERE (judged.state = 'running'::text)) AS inflight_jobs,
            min(judged.started_at) FILTER (WHERE (judged.state = 'running'::text)) AS oldest_running,
            count(*) FILTER (WHERE ((judged.state = 'queued'::text) AND (NOT judged.ready))) AS parked_jobs,
            count(*) FILTER (WHERE (judged.state = 'deferred'::text)) AS deferred_jobs,
            count(*) FILTER (WHERE (judged.state = 'waiting'::text)) AS waiting_jobs
           FROM judged
          GROUP BY judged.queue
        ), dead AS (
         SELECT jobs.queue,
            count(*) AS dead_jobs
           FROM public.jobs
          WHERE (jobs.state = 'dead'::text)
          GROUP BY jobs.queue
        )
 SELECT q.queue,
    COALESCE(c.ready_jobs, (0)::bigint) AS ready_jobs,
    (GREATEST(COALESCE(EXTRACT(epoch FROM (now() - c.oldest_ready)), (0)::numeric), (0)::numeric))::double precision AS ready_oldest_age_seconds,
    (GREATEST(COALESCE(EXTRACT(epoch FROM (now() - c.oldest_unsent)), (0)::numeric), (0)::numeric))::double precision AS unsent_oldest_age_seconds,
    COALESCE(c.inflight_jobs, (0)::bigint) AS inflight_jobs,
    (GREATEST(COALESCE(EXTRACT(epoch FROM (now() - c.oldest_running)), (0)::numeric), (0)::numeric))::double precision AS inflight_oldest_age_seconds,
    COALESCE(c.parked_jobs, (0)::bigint) AS parked_jobs,
    COALESCE(c.deferred_jobs, (0)::bigint) AS deferred_jobs,
    COALESCE(c.waiting_jobs, (0)::bigint) AS waiting_jobs,
    COALESCE(d.dead_jobs, (0)::bigint) AS dead_jobs
   FROM ((unnest(ARRAY['write.interactive'::text, 'write.bulk'::text, 'read.interactive'::text, 'extract.interactive'::text, 'extract.bulk'::text, 'link.interactive'::text, 'link.bulk'::text, 'embed.interactive'::text, 'embed.bulk'::text, 'import.bulk'::text]) q(queue)
     LEFT JOIN counted c ON ((c.queue = q.queue)))
     LEFT JOIN dead d ON ((d.queue = q.queue)));

CREATE TABLE public.breakers (
    circuit text NOT NULL,
    failures integer NOT NULL,
    open_until timestamp with time zone,
    trial_until timestamp with time zone,
    holder text
)
WITH (fillfactor='50');

CREATE TABLE public.budget_accounts (
    provider text NOT NULL,
    currency text NOT NULL,
    cap bigint NOT NULL,
    job_cap bigint,
    spent bigint DEFAULT 0 NOT NULL,
    reserved bigint DEFAULT 0 NOT NULL,
    leased bigint DEFAULT 0 NOT NULL,
    CONSTRAINT budget_accounts_cap_check CHECK ((cap >= 0)),
    CONSTRAINT budget_accounts_job_cap_check CHECK ((job_cap >= 0))
)
WITH (fillfactor='10', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.budget_slices (
    provider text NOT NULL,
    process_id uuid NOT NULL,
    reads boolean NOT NULL,
    size bigint DEFAULT 0 NOT NULL,
    spent bigint DEFAULT 0 NOT NULL,
    reserved bigint DEFAULT 0 NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.budget_spenders (
    tenant_id uuid NOT NULL,
    scope text NOT NULL,
    scope_id uuid NOT NULL,
    provider text NOT NULL,
    cap bigint,
    job_cap bigint,
    spent bigint DEFAULT 0 NOT NULL,
    reserved bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='200', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY public.budget_spenders FORCE ROW LEVEL SECURITY;

CREATE VIEW public.budget_totals AS
SELECT
    NULL::text AS provider,
    NULL::text AS currency,
    NULL::bigint AS cap,
    NULL::bigint AS spent,
    NULL::bigint AS reserved,
    NULL::double precision AS oldest_open_seconds;

CREATE TABLE public.budget_usage (
    tenant_id uuid NOT NULL,
    day date NOT NULL,
    provider text NOT NULL,
    store_id uuid NOT NULL,
    stage text NOT NULL,
    call_class text NOT NULL,
    calls bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    cached bigint DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cost bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='200', autovacuum_vacuum_cost_delay='0');

ALTER TABLE ONLY public.budget_usage FORCE ROW LEVEL SECURITY;

CREATE TABLE public.circuit_counts (
    circuit text NOT NULL,
    moment bigint NOT NULL,
    calls integer DEFAULT 0 NOT NULL,
    retries integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE VIEW public.deferred_reasons AS
 SELECT COALESCE(reason, 'other'::text) AS reason,
    count(*) AS jobs,
    (GREATEST(COALESCE(EXTRACT(epoch FROM (now() - min(ready_at))), (0)::numeric), (0)::numeric))::double precision AS oldest_age_seconds
   FROM public.jobs j
  WHERE ((finished_at IS NULL) AND (state = 'deferred'::text))
  GROUP BY COALESCE(reason, 'other'::text);

CREATE TABLE public.documents (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    document_id text NOT NULL,
    revision bigint NOT NULL,
    "position" bigint NOT NULL,
    scope text NOT NULL,
    workspace_id text,
    session_id text,
    date date,
    event_at timestamp with time zone NOT NULL,
    state text NOT NULL,
    canonical text NOT NULL,
    sha256 bytea NOT NULL
);

ALTER TABLE ONLY public.documents FORCE ROW LEVEL SECURITY;

CREATE TABLE public.erasures (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    record_id text NOT NULL,
    revision bigint NOT NULL,
    erased_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY public.erasures FORCE ROW LEVEL SECURITY;

CREATE TABLE public.function_versions (
    only_row boolean DEFAULT true NOT NULL,
    digest text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT function_versions_only_row_check CHECK (only_row)
);

CREATE TABLE public.idempotency_keys (
    tenant_id uuid NOT NULL,
    route text NOT NULL,
    key text NOT NULL,
    body_sha256 bytea NOT NULL,
    job_id uuid NOT NULL,
    answered smallint,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY public.idempotency_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE public.import_ids (
    tenant_id uuid NOT NULL,
    import_id uuid NOT NULL,
    first_item bigint NOT NULL,
    digests bytea NOT NULL
);
ALTER TABLE ONLY public.import_ids ALTER COLUMN digests SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.import_ids FORCE ROW LEVEL SECURITY;

CREATE TABLE public.imports (
    tenant_id uuid NOT NULL,
    import_id uuid NOT NULL,
    store_id uuid NOT NULL,
    job_id uuid,
    state text DEFAULT 'uploading'::text NOT NULL,
    filename text,
    size bigint NOT NULL,
    received bigint DEFAULT 0 NOT NULL,
    format text,
    next_item bigint DEFAULT 0 NOT NULL,
    report jsonb,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    place jsonb,
    CONSTRAINT imports_state_check CHECK ((state = ANY (ARRAY['uploading'::text, 'ready'::text, 'running'::text, 'paused'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
);

ALTER TABLE ONLY public.imports FORCE ROW LEVEL SECURITY;

CREATE TABLE public.inflight_shares (
    provider text NOT NULL,
    call_class text NOT NULL,
    process_id uuid NOT NULL,
    share integer DEFAULT 0 NOT NULL,
    wanted integer DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.job_payloads (
    tenant_id uuid NOT NULL,
    job_id uuid NOT NULL,
    payload text NOT NULL
);

ALTER TABLE ONLY public.job_payloads FORCE ROW LEVEL SECURITY;

CREATE TABLE public.job_results (
    tenant_id uuid NOT NULL,
    job_id uuid NOT NULL,
    result text NOT NULL
);

ALTER TABLE ONLY public.job_results FORCE ROW LEVEL SECURITY;

ALTER TABLE public.jobs ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.jobs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.leases (
    name text NOT NULL,
    holder text NOT NULL,
    epoch bigint DEFAULT 1 NOT NULL,
    lease_until timestamp with time zone NOT NULL
);

CREATE TABLE public.lexical_indexes (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    build integer NOT NULL,
    version smallint NOT NULL,
    state text DEFAULT 'building'::text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    layout bigint DEFAULT 0 NOT NULL,
    sealed_to bigint DEFAULT 0 NOT NULL,
    loose_from bigint DEFAULT 0 NOT NULL,
    CONSTRAINT lexical_indexes_state_check CHECK ((state = ANY (ARRAY['building'::text, 'active'::text, 'retired'::text])))
);

ALTER TABLE ONLY public.lexical_indexes FORCE ROW LEVEL SECURITY;

CREATE TABLE public.lexical_postings (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    segment_id bigint NOT NULL,
    term text NOT NULL COLLATE pg_catalog."C",
    postings bytea NOT NULL
);
ALTER TABLE ONLY public.lexical_postings ALTER COLUMN postings SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.lexical_postings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.lexical_scopes (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    code integer NOT NULL,
    scope text NOT NULL,
    workspace_id text NOT NULL,
    session_id text NOT NULL
);

ALTER TABLE ONLY public.lexical_scopes FORCE ROW LEVEL SECURITY;

CREATE TABLE public.lexical_segments (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    segment_id bigint NOT NULL,
    build integer NOT NULL,
    first_number bigint NOT NULL,
    end_number bigint NOT NULL,
    retired boolean DEFAULT false NOT NULL,
    first_revision bigint NOT NULL,
    last_revision bigint NOT NULL,
    lengths bytea NOT NULL,
    scopes bytea NOT NULL,
    ordinals bytea NOT NULL,
    pieces bytea NOT NULL,
    revisions bytea NOT NULL,
    ids bytea NOT NULL,
    packed bytea
);
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN lengths SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN scopes SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN ordinals SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN pieces SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN revisions SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.lexical_segments ALTER COLUMN packed SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.lexical_segments FORCE ROW LEVEL SECURITY;

ALTER TABLE public.lexical_segments ALTER COLUMN segment_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.lexical_segments_segment_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.messages (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    document_id text NOT NULL,
    ordinal integer NOT NULL,
    role text NOT NULL,
    content text NOT NULL,
    at text
);

ALTER TABLE ONLY public.messages FORCE ROW LEVEL SECURITY;

CREATE TABLE public.model_cache (
    tenant_id uuid NOT NULL,
    cache text NOT NULL,
    key bytea NOT NULL,
    provider text NOT NULL,
    reply bytea NOT NULL,
    cost bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY public.model_cache FORCE ROW LEVEL SECURITY;

CREATE TABLE public.model_grants (
    tenant_id uuid NOT NULL,
    name text NOT NULL
);

ALTER TABLE ONLY public.model_grants FORCE ROW LEVEL SECURITY;

CREATE TABLE public.model_profiles (
    name text NOT NULL,
    definition jsonb NOT NULL,
    for_all boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.operator_keys (
    key_id uuid NOT NULL,
    key_hash bytea NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE public.processes (
    process_id uuid NOT NULL,
    role text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    queues text[] DEFAULT '{}'::text[] NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    clock_skew_ms integer DEFAULT 0 NOT NULL,
    jobs_done bigint DEFAULT 0 NOT NULL,
    key_envs text[]
);

CREATE VIEW public.process_counts AS
 SELECT role,
    count(*) FILTER (WHERE (seen_at > (now() - '00:00:30'::interval))) AS alive,
    max(abs(clock_skew_ms)) FILTER (WHERE (seen_at > (now() - '00:00:30'::interval))) AS clock_skew_ms
   FROM public.processes
  GROUP BY role;

CREATE TABLE public.process_leases (
    process_id uuid NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.record_entities (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    entity text NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL
);

ALTER TABLE ONLY public.record_entities FORCE ROW LEVEL SECURITY;

CREATE TABLE public.records (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    record_id text NOT NULL,
    revision bigint NOT NULL,
    "position" bigint NOT NULL,
    ordinal integer NOT NULL,
    document_id text NOT NULL,
    start_byte integer NOT NULL,
    end_byte integer NOT NULL,
    scope text NOT NULL,
    workspace_id text,
    session_id text,
    date date,
    event_at timestamp with time zone NOT NULL,
    state text NOT NULL,
    canonical text NOT NULL,
    sha256 bytea NOT NULL,
    number bigint NOT NULL,
    content bytea NOT NULL
);

ALTER TABLE ONLY public.records FORCE ROW LEVEL SECURITY;

CREATE TABLE public.stores (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    name text NOT NULL,
    config jsonb NOT NULL,
    policy_hash text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    "position" bigint DEFAULT 0 NOT NULL,
    stored_bytes bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    next_number bigint DEFAULT 0 NOT NULL,
    index_job uuid,
    embed_job uuid
);

ALTER TABLE ONLY public.stores FORCE ROW LEVEL SECURITY;

CREATE TABLE public.uploads (
    tenant_id uuid NOT NULL,
    import_id uuid NOT NULL,
    chunk integer NOT NULL,
    bytes bytea NOT NULL
);
ALTER TABLE ONLY public.uploads ALTER COLUMN bytes SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.uploads FORCE ROW LEVEL SECURITY;

CREATE TABLE public.vector_sets (
    tenant_id uuid NOT NULL,
    store_id uuid NOT NULL,
    space uuid NOT NULL,
    model text NOT NULL,
    dimensions integer,
    filled bigint DEFAULT 0 NOT NULL
);

ALTER TABLE ONLY public.vector_sets FORCE ROW LEVEL SECURITY;

CREATE TABLE public.vectors (
    tenant_id uuid NOT NULL,
    content bytea NOT NULL,
    space uuid NOT NULL,
    vector bytea NOT NULL
)
WITH (toast_tuple_target='8160');
ALTER TABLE ONLY public.vectors ALTER COLUMN vector SET STORAGE EXTERNAL;

ALTER TABLE ONLY public.vectors FORCE ROW LEVEL SECURITY;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id);

ALTER TABLE ONLY public.breakers
    ADD CONSTRAINT breakers_pkey PRIMARY KEY (circuit);

ALTER TABLE ONLY public.budget_accounts
    ADD CONSTRAINT budget_accounts_pkey PRIMARY KEY (provider);

ALTER TABLE ONLY public.budget_entries
    ADD CONSTRAINT budget_entries_pkey PRIMARY KEY (tenant_id, entry_id);

ALTER TABLE ONLY public.budget_slices
    ADD CONSTRAINT budget_slices_pkey PRIMARY KEY (provider, process_id, reads);

ALTER TABLE ONLY public.budget_spenders
    ADD CONSTRAINT budget_spenders_pkey PRIMARY KEY (tenant_id, scope, scope_id, provider);

ALTER TABLE ONLY public.budget_usage
    ADD CONSTRAINT budget_usage_pkey PRIMARY KEY (tenant_id, day, provider, store_id, stage, call_class);

ALTER TABLE ONLY public.circuit_counts
    ADD CONSTRAINT circuit_counts_pkey PRIMARY KEY (circuit, moment);

ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (tenant_id, store_id, document_id, revision);

ALTER TABLE ONLY public.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (tenant_id, store_id, record_id);

ALTER TABLE ONLY public.function_versions
    ADD CONSTRAINT function_versions_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, route, key);

ALTER TABLE ONLY public.import_ids
    ADD CONSTRAINT import_ids_pkey PRIMARY KEY (tenant_id, import_id, first_item);

ALTER TABLE ONLY public.imports
    ADD CONSTRAINT imports_pkey PRIMARY KEY (tenant_id, import_id);

ALTER TABLE ONLY public.inflight_shares
    ADD CONSTRAINT inflight_shares_pkey PRIMARY KEY (provider, call_class, process_id);

ALTER TABLE ONLY public.job_payloads
    ADD CONSTRAINT job_payloads_pkey PRIMARY KEY (tenant_id, job_id);

ALTER TABLE ONLY public.job_results
    ADD CONSTRAINT job_results_pkey PRIMARY KEY (tenant_id, job_id);

ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (tenant_id, job_id);

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.lexical_indexes
    ADD CONSTRAINT lexical_indexes_pkey PRIMARY KEY (tenant_id, store_id, build);

ALTER TABLE ONLY public.lexical_postings
    ADD CONSTRAINT lexical_postings_pkey PRIMARY KEY (tenant_id, store_id, segment_id, term);

ALTER TABLE ONLY public.lexical_scopes
    ADD CONSTRAINT lexical_scopes_pkey PRIMARY KEY (tenant_id, store_id, code);

ALTER TABLE ONLY public.lexical_scopes
    ADD CONSTRAINT lexical_scopes_tenant_id_store_id_scope_workspace_id_sessio_key UNIQUE (tenant_id, store_id, scope, workspace_id, session_id);

ALTER TABLE ONLY public.lexical_segments
    ADD CONSTRAINT lexical_segments_pkey PRIMARY KEY (tenant_id, store_id, segment_id);

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (tenant_id, store_id, document_id, ordinal);

ALTER TABLE ONLY public.model_cache
    ADD CONSTRAINT model_cache_pkey PRIMARY KEY (tenant_id, cache, key);

ALTER TABLE ONLY public.model_grants
    ADD CONSTRAINT model_grants_pkey PRIMARY KEY (tenant_id, name);

ALTER TABLE ONLY public.model_profiles
    ADD CONSTRAINT model_profiles_pkey PRIMARY KEY (name);

ALTER TABLE ONLY public.operator_keys
    ADD CONSTRAINT operator_keys_key_hash_key UNIQUE (key_hash);

ALTER TABLE ONLY public.operator_keys
    ADD CONSTRAINT operator_keys_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY public.process_leases
    ADD CONSTRAINT process_leases_pkey PRIMARY KEY (process_id);

ALTER TABLE ONLY public.processes
    ADD CONSTRAINT processes_pkey PRIMARY KEY (process_id);

ALTER TABLE ONLY public.record_entities
    ADD CONSTRAINT record_entities_pkey PRIMARY KEY (tenant_id, store_id, entity, number);

ALTER TABLE ONLY public.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (tenant_id, store_id, record_id, revision);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_pkey PRIMARY KEY (tenant_id, store_id);

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_tenant_id_name_key UNIQUE (tenant_id, name);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_name_key UNIQUE (name);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.uploads
    ADD CONSTRAINT uploads_pkey PRIMARY KEY (tenant_id, import_id, chunk);

ALTER TABLE ONLY public.vector_sets
    ADD CONSTRAINT vector_sets_pkey PRIMARY KEY (tenant_id, store_id, space);

ALTER TABLE ONLY public.vectors
    ADD CONSTRAINT vectors_pkey PRIMARY KEY (tenant_id, content, space);

CREATE INDEX budget_entries_job ON public.budget_entries USING btree (tenant_id, job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX budget_entries_open ON public.budget_entries USING btree (owner) WHERE (state = 'reserved'::text);

CREATE INDEX documents_position ON public.documents USING btree (tenant_id, store_id, "position");

CREATE INDEX documents_session ON public.documents USING btree (tenant_id, store_id, session_id) WHERE (session_id IS NOT NULL);

CREATE INDEX idempotency_keys_age ON public.idempotency_keys USING btree (created_at);

CREATE INDEX imports_age ON public.imports USING btree (updated_at);

CREATE INDEX jobs_children ON public.jobs USING btree (tenant_id, parent_id) WHERE (parent_id IS NOT NULL);

CREATE INDEX jobs_dead ON public.jobs USING btree (queue, finished_at) WHERE (state = 'dead'::text);

CREATE INDEX jobs_due ON public.jobs USING btree (due_at) WHERE ((finished_at IS NULL) AND (due_at IS NOT NULL));

CREATE INDEX jobs_old ON public.jobs USING btree (due_at) WHERE (finished_at IS NOT NULL);

CREATE INDEX jobs_open ON public.jobs USING btree (tenant_id, queue, sent_at) WHERE (finished_at IS NULL);

CREATE INDEX jobs_rare ON public.jobs USING btree (tenant_id, state, job_id) WHERE (state = ANY (ARRAY['waiting'::text, 'deferred'::text, 'failed'::text, 'cancelled'::text, 'dead'::text]));

CREATE INDEX jobs_ready ON public.jobs USING btree (queue, tenant_id, seq) WHERE ((state = 'queued'::text) AND (sent_at IS NULL) AND (run_at IS NULL));

CREATE INDEX jobs_suspect ON public.jobs USING btree (queue, sent_at) WHERE ((crashes > 0) AND (finished_at IS NULL));

CREATE INDEX jobs_writes ON public.jobs USING btree (tenant_id, store_id, seq) WHERE ((finished_at IS NULL) AND (queue = ANY (ARRAY['write.interactive'::text, 'write.bulk'::text])));

CREATE UNIQUE INDEX lexical_indexes_active ON public.lexical_indexes USING btree (tenant_id, store_id) WHERE (state = 'active'::text);

CREATE INDEX lexical_segments_live ON public.lexical_segments USING btree (tenant_id, store_id, build, end_number) WHERE (NOT retired);

CREATE INDEX record_entities_number ON public.record_entities USING btree (tenant_id, store_id, number);

CREATE INDEX records_content ON public.records USING hash (content);

CREATE INDEX records_document ON public.records USING btree (tenant_id, store_id, document_id);

CREATE INDEX records_event ON public.records USING btree (tenant_id, store_id, event_at, number);

CREATE UNIQUE INDEX records_number ON public.records USING btree (tenant_id, store_id, number);

CREATE INDEX records_position ON public.records USING btree (tenant_id, store_id, "position", ordinal);

CREATE OR REPLACE VIEW public.budget_totals AS
 SELECT a.provider,
    a.currency,
    a.cap,
    (((a.spent)::numeric + COALESCE(sum(s.spent), (0)::numeric)))::bigint AS spent,
    ((((a.reserved + a.leased))::numeric - COALESCE(sum(s.spent), (0)::numeric)))::bigint AS reserved,
    (COALESCE(EXTRACT(epoch FROM (now() - min(o.oldest))), (0)::numeric))::double precision AS oldest_open_seconds
   FROM ((public.budget_accounts a
     LEFT JOIN public.budget_slices s ON ((s.provider = a.provider)))
     LEFT JOIN ( SELECT e.provider,
            min(e.created_at) AS oldest
           FROM public.budget_entries e
          WHERE (e.state = 'reserved'::text)
          GROUP BY e.provider) o ON ((o.provider = a.provider)))
  GROUP BY a.provider;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(tenant_id);

ALTER TABLE ONLY public.budget_slices
    ADD CONSTRAINT budget_slices_provider_fkey FOREIGN KEY (provider) REFERENCES public.budget_accounts(provider);

ALTER TABLE ONLY public.model_grants
    ADD CONSTRAINT model_grants_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(tenant_id) ON DELETE CASCADE;

ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES public.tenants(tenant_id);

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.budget_entries ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.budget_spenders ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.budget_usage ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.documents ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.erasures ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.idempotency_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.import_ids ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.imports ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.job_payloads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.job_results ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.jobs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.lexical_indexes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.lexical_postings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.lexical_scopes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.lexical_segments ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_cache ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_grants ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.record_entities ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.records ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.stores ENABLE ROW LEVEL SECURITY;

CREATE POLICY system ON public.api_keys TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.budget_entries TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.budget_spenders TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.budget_usage TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.documents TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.erasures TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.idempotency_keys TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.import_ids TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.imports TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.job_payloads TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.job_results TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.jobs TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.lexical_indexes TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.lexical_postings TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.lexical_scopes TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.lexical_segments TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.messages TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.model_cache TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.model_grants TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.record_entities TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.records TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.stores TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.uploads TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.vector_sets TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY system ON public.vectors TO muniment_owner, muniment_relay USING (true) WITH CHECK (true);

CREATE POLICY tenant ON public.api_keys TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.budget_entries TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.budget_spenders TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.budget_usage TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.documents TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.erasures TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.idempotency_keys TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.import_ids TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.imports TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.job_payloads TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.job_results TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.jobs TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.lexical_indexes TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.lexical_postings TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.lexical_scopes TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.lexical_segments TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.messages TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.model_cache TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.model_grants TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.record_entities TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.records TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.stores TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.uploads TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.vector_sets TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

CREATE POLICY tenant ON public.vectors TO muniment_app USING ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif"))) WITH CHECK ((tenant_id = ( SELECT (NULLIF(current_setting('muniment.tenant'::text, true), ''::text))::uuid AS "nullif")));

ALTER TABLE public.uploads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.vector_sets ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.vectors ENABLE ROW LEVEL SECURITY;

GRANT USAGE ON SCHEMA public TO muniment_app;
GRANT USAGE ON SCHEMA public TO muniment_relay;
GRANT USAGE ON SCHEMA public TO muniment_exporter;

REVOKE ALL ON FUNCTION public.authenticate(p_key_hash bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION public.authenticate(p_key_hash bytea) TO muniment_app;
GRANT ALL ON FUNCTION public.authenticate(p_key_hash bytea) TO muniment_relay;

GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_entries TO muniment_app;
GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_entries TO muniment_relay;

GRANT SELECT ON TABLE public.api_keys TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.jobs TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.jobs TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tenants TO muniment_relay;

GRANT SELECT ON TABLE public.backlog TO muniment_exporter;
GRANT SELECT ON TABLE public.backlog TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.breakers TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.breakers TO muniment_relay;

GRANT SELECT,UPDATE ON TABLE public.budget_accounts TO muniment_app;
GRANT SELECT,UPDATE ON TABLE public.budget_accounts TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budget_slices TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budget_slices TO muniment_relay;

GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_spenders TO muniment_app;
GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_spenders TO muniment_relay;

GRANT SELECT ON TABLE public.budget_totals TO muniment_exporter;
GRANT SELECT ON TABLE public.budget_totals TO muniment_relay;

GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_usage TO muniment_app;
GRANT SELECT,INSERT,UPDATE ON TABLE public.budget_usage TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.circuit_counts TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.circuit_counts TO muniment_relay;

GRANT SELECT ON TABLE public.deferred_reasons TO muniment_exporter;
GRANT SELECT ON TABLE public.deferred_reasons TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.documents TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.documents TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.erasures TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.erasures TO muniment_relay;

GRANT SELECT ON TABLE public.function_versions TO muniment_app;
GRANT SELECT ON TABLE public.function_versions TO muniment_relay;
GRANT SELECT ON TABLE public.function_versions TO muniment_exporter;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.import_ids TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.import_ids TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.imports TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.imports TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.inflight_shares TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.inflight_shares TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_payloads TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_payloads TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_results TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.job_results TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.leases TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_indexes TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_indexes TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_postings TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_postings TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_scopes TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_scopes TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_segments TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.lexical_segments TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.messages TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.messages TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_cache TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_cache TO muniment_relay;

GRANT SELECT ON TABLE public.model_grants TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_grants TO muniment_relay;

GRANT SELECT ON TABLE public.model_profiles TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_profiles TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.operator_keys TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.processes TO muniment_relay;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.processes TO muniment_app;

GRANT SELECT ON TABLE public.process_counts TO muniment_exporter;
GRANT SELECT ON TABLE public.process_counts TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.process_leases TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.process_leases TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.record_entities TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.record_entities TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.records TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.records TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.stores TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.stores TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.uploads TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.uploads TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.vector_sets TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.vector_sets TO muniment_relay;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.vectors TO muniment_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.vectors TO muniment_relay;
