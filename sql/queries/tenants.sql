-- Tenants and keys. All but `authenticate` run as muniment_relay, on behalf of an operator.

-- name: authenticate(key_hash)
select * from authenticate(:key_hash::bytea);

-- name: insert_tenant(tenant, tenant_name)
-- No row when the name is taken.
insert into tenants (tenant_id, name) values (:tenant, :tenant_name) on conflict (name) do nothing returning *;

-- name: get_tenant(tenant)
select * from tenants where tenant_id = :tenant;

-- name: lock_tenant(tenant)
select * from tenants where tenant_id = :tenant for update;

-- name: list_tenants(after, limit)
select * from tenants where (:after::uuid is null or tenant_id > :after::uuid) order by tenant_id limit :limit;

-- name: set_tenant_limits(tenant, weight, max_queued_jobs, max_queued_bytes, max_stored_bytes, max_requests_per_second)
update tenants
   set weight = :weight, max_queued_jobs = :max_queued_jobs, max_queued_bytes = :max_queued_bytes,
       max_stored_bytes = :max_stored_bytes, max_requests_per_second = :max_requests_per_second
 where tenant_id = :tenant
returning *;

-- name: insert_key(tenant, key, key_hash, key_name, scopes, stores, expires_at)
insert into api_keys (tenant_id, key_id, key_hash, name, scopes, stores, expires_at)
values (:tenant, :key, :key_hash, :key_name, :scopes::text[], :stores::text[], :expires_at::timestamptz)
returning tenant_id, key_id, name, scopes, stores, created_at, expires_at, revoked_at;

-- name: insert_operator_key(key, key_hash, key_name, expires_at)
insert into operator_keys (key_id, key_hash, name, expires_at)
values (:key, :key_hash, :key_name, :expires_at::timestamptz)
returning null::uuid as tenant_id, key_id, name, array['operator'] as scopes, null::text[] as stores, created_at, expires_at,
          revoked_at;

-- name: list_keys(tenant, after, limit)
select tenant_id, key_id, name, scopes, stores, created_at, expires_at, revoked_at
  from api_keys
 where tenant_id = :tenant and (:after::uuid is null or key_id > :after::uuid) order by key_id limit :limit;

-- name: list_operator_keys(after, limit)
select null::uuid as tenant_id, key_id, name, array['operator'] as scopes, null::text[] as stores, created_at, expires_at,
       revoked_at
  from operator_keys where (:after::uuid is null or key_id > :after::uuid) order by key_id limit :limit;

-- name: revoke_key(key)
-- By its id alone: an operator revokes, and key ids are unique over all tenants. The first revocation's time stays.
with tenant_key as (
  update api_keys set revoked_at = coalesce(revoked_at, now()) where key_id = :key returning tenant_id, key_id),
operator_key as (
  update operator_keys set revoked_at = coalesce(revoked_at, now()) where key_id = :key returning null::uuid, key_id)
select * from tenant_key union all select * from operator_key;
