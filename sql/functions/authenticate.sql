-- A key is found before its tenant is known: the only SECURITY DEFINER function (architecture.md §3).
create or replace function authenticate(p_key_hash bytea)
returns table (tenant_id uuid, key_id uuid, scopes text[], stores text[], weight smallint, max_queued_jobs integer,
               max_queued_bytes bigint, max_stored_bytes bigint, max_requests_per_second integer)
language sql stable security definer set search_path = pg_catalog, public as $$
  select k.tenant_id, k.key_id, k.scopes, k.stores, t.weight, t.max_queued_jobs, t.max_queued_bytes, t.max_stored_bytes,
         t.max_requests_per_second
    from public.api_keys k join public.tenants t on t.tenant_id = k.tenant_id
   where k.key_hash = p_key_hash and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
  union all
  select null, o.key_id, array['operator'], null, null, null, null, null, null
    from public.operator_keys o
   where o.key_hash = p_key_hash and o.revoked_at is null and (o.expires_at is null or o.expires_at > now())
$$;
revoke all on function authenticate(bytea) from public;
grant execute on function authenticate(bytea) to muniment_app, muniment_relay;
