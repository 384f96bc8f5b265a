-- Circuits, profiles and the replay cache (core/models).

-- name: breaker_failed(circuit, threshold, open)
select * from breaker_failed(:circuit::text, :threshold::integer, make_interval(secs => :open));

-- name: breaker_recovered(circuit, trial)
-- While calls fail fast only the trial's answer counts; any other is older than that, and this says what it did not know.
with gone as (
  delete from breakers where circuit = :circuit and (:trial::boolean or open_until is null))
select failures,
       extract(epoch from greatest(open_until, case when open_until is not null then trial_until end) - now())
         ::double precision as open_left
  from breakers where circuit = :circuit and not :trial::boolean and open_until is not null;

-- name: breaker_trial(circuit, holder, trial)
select breaker_trial(:circuit::text, :holder::text, make_interval(secs => :trial)) as granted;

-- name: breakers()
-- open_left: seconds until a trial may be made; null: not open.
select circuit, failures,
       extract(epoch from greatest(open_until, case when open_until is not null then trial_until end) - now())
         ::double precision as open_left
  from breakers;

-- name: add_calls(circuits, calls)
select add_calls(:circuits::text[], :calls::integer[]);

-- name: take_retry(circuit, share, always)
select take_retry(:circuit::text, :share::double precision, :always::integer) as granted;

-- name: granted_profile(tenant, profile)
select p.definition from model_profiles p
 where p.name = :profile
   and (p.for_all or exists (select from model_grants g where g.tenant_id = :tenant and g.name = p.name));

-- name: put_profile(profile, definition, for_all)
insert into model_profiles as p (name, definition, for_all) values (:profile, :definition::jsonb, :for_all)
on conflict (name) do update set definition = excluded.definition, for_all = excluded.for_all, updated_at = now()
returning (p.xmax = 0) as created;

-- name: set_grants(profile, tenants)!
with gone as (
  delete from model_grants where name = :profile and tenant_id <> all (:tenants::uuid[]))
insert into model_grants (tenant_id, name)
select t.tenant_id, :profile from tenants t where t.tenant_id = any (:tenants::uuid[])
on conflict (tenant_id, name) do nothing;

-- name: add_grant(tenant, profile)!
insert into model_grants (tenant_id, name) values (:tenant, :profile) on conflict (tenant_id, name) do nothing;

-- name: remove_grant(tenant, profile)!
delete from model_grants where tenant_id = :tenant and name = :profile;

-- name: unknown_tenants(tenants)
select w.tenant_id from unnest(:tenants::uuid[]) as w (tenant_id)
 where not exists (select from tenants t where t.tenant_id = w.tenant_id);

-- name: list_profiles(after, limit)
select p.name, p.definition, p.for_all, p.created_at, p.updated_at,
       array(select g.tenant_id from model_grants g where g.name = p.name order by g.tenant_id) as tenants
  from model_profiles p
 where p.name > coalesce(:after::text, '')
 order by p.name limit :limit;

-- name: get_profile(profile)
select p.name, p.definition, p.for_all, p.created_at, p.updated_at,
       array(select g.tenant_id from model_grants g where g.name = p.name order by g.tenant_id) as tenants
  from model_profiles p where p.name = :profile;

-- name: delete_profile(profile)!
with granted as (
  delete from model_grants where name = :profile)
delete from model_profiles where name = :profile;

-- name: profile_users(profile, limit)
-- The stores whose configuration names a profile; of all tenants, for operators.
select s.tenant_id, s.name from stores s
 where :profile in (s.config->>'planner', s.config->>'judge', s.config->>'consolidator', s.config->>'embedding')
 order by s.tenant_id, s.name limit :limit;

-- name: recorded_reply(tenant, cache, key)
select reply, cost from model_cache where tenant_id = :tenant and cache = :cache and key = :key;

-- name: record_reply(tenant, cache, key, provider, reply, cost)!
insert into model_cache (tenant_id, cache, key, provider, reply, cost)
values (:tenant, :cache, :key, :provider, :reply, :cost)
on conflict (tenant_id, cache, key) do update
   set provider = excluded.provider, reply = excluded.reply, cost = excluded.cost, created_at = now();

-- name: recorded_replies(tenant, cache, after, limit)
select key, provider, reply, cost from model_cache
 where tenant_id = :tenant and cache = :cache and (:after::bytea is null or key > :after)
 order by key limit :limit;

-- name: forget_replies(tenant, cache)!
delete from model_cache where tenant_id = :tenant and cache = :cache;
