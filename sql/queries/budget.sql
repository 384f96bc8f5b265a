-- Money. The steps of the ledger set their tenants themselves (sql/functions/ledger.sql).

-- name: renew_process_lease(process, lease)!
insert into process_leases (process_id, lease_until) values (:process, now() + make_interval(secs => :lease))
on conflict (process_id) do update set lease_until = excluded.lease_until;

-- name: end_process_lease(process)!
delete from process_leases where process_id = :process;

-- name: budget_reserve(owner, provider, part, entries, tenants, stores, jobs, stages, classes, reserves, inputs, replies)
select * from budget_reserve(:owner::uuid, :provider::text, :part::float8, :entries::uuid[], :tenants::uuid[], :stores::uuid[],
                             :jobs::uuid[], :stages::text[], :classes::text[], :reserves::bigint[], :inputs::bigint[],
                             :replies::float8[]);

-- name: budget_finish(provider, sliced, entries, tenants, states, outcomes, costs, inputs, outputs)
select * from budget_finish(:provider::text, :sliced::boolean, :entries::uuid[], :tenants::uuid[], :states::text[],
                            :outcomes::text[], :costs::bigint[], :inputs::bigint[], :outputs::bigint[]);

-- name: budget_count(entries, tenants, providers, stores, jobs, stages, classes, outcomes, inputs, outputs)
select budget_count(:entries::uuid[], :tenants::uuid[], :providers::text[], :stores::uuid[], :jobs::uuid[], :stages::text[],
                    :classes::text[], :outcomes::text[], :inputs::bigint[], :outputs::bigint[]) as counted;

-- name: wait_for_disk()
-- Its commit is on disk only after everything that this session has committed before it.
select pg_logical_emit_message(true, 'muniment', '') is not null as done;

-- name: budget_unended(entries, tenants)
select budget_unended(:entries::uuid[], :tenants::uuid[]) as entry_id;

-- name: return_slices(owner, idle)
select budget_return_slices(:owner::uuid, make_interval(secs => :idle)) as returned;

-- name: settle_dead(limit)
select * from budget_settle_dead(:limit::integer);

-- name: rebalance_shares(process, providers, classes, caps, shares, wanted)
select * from inflight_rebalance(:process::uuid, :providers::text[], :classes::text[], :caps::integer[], :shares::integer[],
                                 :wanted::integer[]);

-- name: return_shares(process)!
delete from inflight_shares where process_id = :process;

-- name: set_provider_cap(provider, cap)!
-- Written over the stored one; what was spent stays (seed: "A process enforces its configured cap…").
update budget_accounts set cap = :cap where provider = :provider and cap <> :cap;

-- name: set_provider_job_cap(provider, cap)!
update budget_accounts set job_cap = :cap::bigint where provider = :provider;

-- name: set_spender_cap(tenant, scope, id, provider, cap)!
insert into budget_spenders as s (tenant_id, scope, scope_id, provider, cap)
values (:tenant, :scope, :id, :provider, :cap::bigint)
on conflict (tenant_id, scope, scope_id, provider) do update set cap = excluded.cap;

-- name: set_spender_job_cap(tenant, provider, cap)!
insert into budget_spenders as s (tenant_id, scope, scope_id, provider, job_cap)
values (:tenant, 'tenant', :tenant, :provider, :cap::bigint)
on conflict (tenant_id, scope, scope_id, provider) do update set job_cap = excluded.job_cap;

-- name: clear_store_caps(tenant, store, providers)!
-- Those that the store's configuration names no longer.
update budget_spenders set cap = null
 where tenant_id = :tenant and scope = 'store' and scope_id = :store and not provider = any (:providers::text[])
   and cap is not null;

-- name: accounts()
-- What is in slices counts as reserved until it is spent.
select a.provider, a.currency, a.cap, a.job_cap, (a.spent + coalesce(sum(s.spent), 0))::bigint as spent,
       (a.reserved + a.leased - coalesce(sum(s.spent), 0))::bigint as reserved
  from budget_accounts a left join budget_slices s on s.provider = a.provider
 group by a.provider order by a.provider;

-- name: spenders(tenant, stores, after_scope, after_id, after_provider, limit)
-- Of a tenant and its stores, by scope, store and provider; `stores`: only these, and then not the tenant's own.
select b.scope, b.provider, a.currency, b.cap, least(b.job_cap, case when b.scope = 'tenant' then a.job_cap end) as job_cap,
       b.spent, b.reserved, s.name as store, b.scope_id
  from budget_spenders b
  join budget_accounts a on a.provider = b.provider
  left join stores s on s.tenant_id = b.tenant_id and s.store_id = b.scope_id
 where b.tenant_id = :tenant and b.scope in ('tenant', 'store')
   and (:stores::text[] is null or (b.scope = 'store' and s.name = any (:stores::text[])))
   and (:after_scope::text is null
        or (b.scope, b.scope_id, b.provider) > (:after_scope::text, :after_id::uuid, :after_provider::text))
 order by b.scope, b.scope_id, b.provider limit :limit;

-- name: usage(tenant, by, stores, first, last, after_part, after_provider, limit)
-- Summed up by provider and one thing more: provider (nothing), stage, store or day.
with grouped as (
  select u.provider,
         case :by::text when 'stage' then u.stage when 'store' then u.store_id::text when 'day' then u.day::text
              else '' end as part,
         sum(u.calls)::bigint as calls, sum(u.failed)::bigint as failed, sum(u.cached)::bigint as cached,
         sum(u.input_tokens)::bigint as input_tokens, sum(u.output_tokens)::bigint as output_tokens,
         sum(u.cost)::bigint as cost
    from budget_usage u
   where u.tenant_id = :tenant
     and (:first::date is null or u.day >= :first::date) and (:last::date is null or u.day <= :last::date)
     and (:stores::text[] is null or u.store_id in (
           select s.store_id from stores s where s.tenant_id = :tenant and s.name = any (:stores::text[])))
   group by 1, 2)
select g.*, a.currency,
       case :by::text when 'store' then (select s.name from stores s
                                          where s.tenant_id = :tenant and s.store_id = g.part::uuid) end as store
  from grouped g left join budget_accounts a on a.provider = g.provider
 where :after_part::text is null or (g.part, g.provider) > (:after_part::text, :after_provider::text)
 order by g.part, g.provider limit :limit;

-- name: usage_of_jobs(tenant, job, stores, before_job, after_provider, limit)
-- By job and provider, newest jobs first.
select e.job_id, e.provider, a.currency, count(*) filter (where e.state <> 'reserved') as calls,
       count(*) filter (where e.state <> 'reserved' and e.outcome not in ('ok', 'cached')) as failed,
       count(*) filter (where e.outcome = 'cached') as cached, sum(e.input_tokens)::bigint as input_tokens,
       sum(e.output_tokens)::bigint as output_tokens, sum(e.cost)::bigint as cost
  from budget_entries e
  left join budget_accounts a on a.provider = e.provider
 where e.tenant_id = :tenant and e.job_id is not null
   and (:job::uuid is null or e.job_id = :job::uuid)
   and (:stores::text[] is null or e.store_id in (
         select s.store_id from stores s where s.tenant_id = :tenant and s.name = any (:stores::text[])))
   and (:before_job::uuid is null or e.job_id < :before_job::uuid
        or (e.job_id = :before_job::uuid and e.provider > :after_provider::text))
 group by e.job_id, e.provider, a.currency
 order by e.job_id desc, e.provider limit :limit;

-- name: budget_totals()
select * from budget_totals order by provider;

-- name: deferred_reasons()
select * from deferred_reasons;
