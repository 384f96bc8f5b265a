-- The ledger's steps, one round trip each; they set the tenants themselves. A batch is of one provider.
--
-- They commit without waiting for the disk, so that an account's row is locked for a moment only. Whoever reserved waits for the
-- disk afterwards (`wait_for_disk`), together with everyone else, before the call is sent. An end is on disk before anything that
-- is committed later, such as the job's result; should Postgres crash first, its process writes it again (core/budget/ledger.py).
--
-- Locks are always taken in this order: the account (not when its money comes from slices), the tenant's row, its other rows,
-- the entry, the slice, its account. Batches go by tenant. What still deadlocks wrote nothing and is run again.

-- What calls of a class may use of a cap: the last tenth is left to reads.
create or replace function budget_limit(p_cap bigint, p_reads boolean) returns bigint language sql immutable as $$
  select case when p_reads then p_cap else p_cap - (p_cap + 9) / 10 end
$$;

-- Takes off again what was reserved for a call's spenders.
create or replace function budget_undo(p_tenant uuid, p_store uuid, p_job uuid, p_provider text, p_reserved bigint)
returns void language sql as $$
  update budget_spenders s set reserved = s.reserved - p_reserved
   where s.tenant_id = p_tenant and s.provider = p_provider
     and (s.scope, s.scope_id) in (('tenant', p_tenant), ('store', p_store), ('job', p_job))
$$;

-- Makes the rows of a call's spenders that are not there yet. A job's begins with what its entries say.
create or replace function budget_open(p_tenant uuid, p_store uuid, p_job uuid, p_provider text) returns void language sql as $$
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

-- Takes money out of this process's slice, which grows by a part of the cap when it is too small. Null: there is none.
create or replace function budget_take_slice(p_owner uuid, p_provider text, p_reads boolean, p_amount bigint,
                                             p_part double precision)
returns boolean language plpgsql as $$
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

-- Sets money aside for calls of one provider. Rows by entry: `outcome` is reserved; lease-lost; no-account; ended (this entry
-- is settled already); or the scope whose cap is used up, with `reads_only` when its last tenth would have room.
create or replace function budget_reserve(p_owner uuid, p_provider text, p_part double precision, p_entries uuid[],
                                          p_tenants uuid[], p_stores uuid[], p_jobs uuid[], p_stages text[],
                                          p_classes text[], p_reserves bigint[], p_inputs bigint[],
                                          p_replies double precision[])
returns table (entry_id uuid, outcome text, reads_only boolean) language plpgsql as $$
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

create or replace function budget_add_usage(e budget_entries, p_calls integer, p_failed integer, p_cached integer,
                                            p_input bigint, p_output bigint, p_cost bigint)
returns void language plpgsql as $$
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

-- Ends reservations of one provider: `p_states` says how (settled, released, estimated); a cost is used of a settled one only.
-- What has ended stays as it is, but an estimate gives way to the truth. Rows by entry: ended (before or now), or unknown.
create or replace function budget_finish(p_provider text, p_sliced boolean, p_entries uuid[], p_tenants uuid[],
                                         p_states text[], p_outcomes text[], p_costs bigint[], p_inputs bigint[],
                                         p_outputs bigint[])
returns table (entry_id uuid, outcome text) language plpgsql as $$
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

-- Which of these entries are still open: asked once the disk has all that was committed before, it says what was lost.
create or replace function budget_unended(p_entries uuid[], p_tenants uuid[]) returns setof uuid language plpgsql as $$
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

-- Calls that cost nothing: counted, whether or not their provider has an account.
create or replace function budget_count(p_entries uuid[], p_tenants uuid[], p_providers text[], p_stores uuid[],
                                        p_jobs uuid[], p_stages text[], p_classes text[], p_outcomes text[],
                                        p_inputs bigint[], p_outputs bigint[])
returns void language plpgsql as $$
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

-- Gives back what a process's slices hold and have not used for a while.
create or replace function budget_return_slices(p_owner uuid, p_idle interval) returns void language plpgsql as $$
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

-- Settles what dead processes left, at its stored input estimates: at most p_limit entries, of one provider a call. When
-- none are left, their slices and shares go too. Runs as muniment_relay.
--
-- A process may only be paused, and its reply still be on the way: so an entry is taken when its owner's lease has run out and
-- so has the time in which an attempt ends. That is a bound, not a proof: who is stopped for longer than both, and only then
-- reads a reply, may settle above what is left of a cap.
create or replace function budget_settle_dead(p_limit integer)
returns table (tenant_id uuid, entry_id uuid, provider text, cost bigint) language plpgsql as $$
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

-- A process's shares of in-flight caps. It says what it holds (never more than it was given: what it wants to give back it
-- has lowered beforehand), and what it wants; `share` is what it holds from now on, `target` what would be fair: it lowers
-- itself to that and says so in the next call. No row: the lease is lost.
create or replace function inflight_rebalance(p_process uuid, p_providers text[], p_classes text[], p_caps integer[],
                                              p_shares integer[], p_wanted integer[])
returns table (provider text, call_class text, share integer, target integer) language plpgsql as $$
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

-- What an exporter may see of it: sums over all tenants.
create or replace view budget_totals as
select a.provider, a.currency, a.cap,
       (a.spent + coalesce(sum(s.spent), 0))::bigint as spent,
       (a.reserved + a.leased - coalesce(sum(s.spent), 0))::bigint as reserved,
       coalesce(extract(epoch from now() - min(o.oldest)), 0)::float8 as oldest_open_seconds
  from budget_accounts a
  left join budget_slices s on s.provider = a.provider
  left join (select e.provider, min(e.created_at) as oldest from budget_entries e where e.state = 'reserved' group by 1) o
         on o.provider = a.provider
 group by a.provider;
alter view budget_totals owner to muniment_owner;

create or replace view deferred_reasons as
select coalesce(j.reason, 'other') as reason, count(*) as jobs,
       greatest(coalesce(extract(epoch from now() - min(j.ready_at)), 0), 0)::float8 as oldest_age_seconds
  from jobs j where j.finished_at is null and j.state = 'deferred' group by 1;
alter view deferred_reasons owner to muniment_owner;

grant select on budget_totals, deferred_reasons to muniment_exporter, muniment_relay;
