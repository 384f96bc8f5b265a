-- name: insert_store(tenant, store, store_name, config, policy_hash)
-- No row when the name is taken.
insert into stores (tenant_id, store_id, name, config, policy_hash)
values (:tenant, :store, :store_name, :config::jsonb, :policy_hash)
on conflict (tenant_id, name) do nothing
returning *;

-- name: get_store(tenant, store_name)
select * from stores where tenant_id = :tenant and name = :store_name;

-- name: lock_store_by_name(tenant, store_name)
select * from stores where tenant_id = :tenant and name = :store_name for update;

-- name: store_id(tenant, store_name)
select store_id from stores where tenant_id = :tenant and name = :store_name;

-- name: replace_store(tenant, store, config, policy_hash)
-- The version rises only when something changed: the same request again answers the same.
update stores s
   set config = :config::jsonb, policy_hash = :policy_hash,
       version = s.version + case when s.config = :config::jsonb then 0 else 1 end,
       updated_at = case when s.config = :config::jsonb then s.updated_at else now() end
 where s.tenant_id = :tenant and s.store_id = :store
returning *;

-- name: list_stores(tenant, names, after, limit)
-- `names` null: every store; else only those (a key's own).
select * from stores
 where tenant_id = :tenant and (:after::text is null or name > :after::text)
   and (:names::text[] is null or name = any (:names::text[]))
 order by name limit :limit;
