-- name: set_tenant(tenant)!
-- The first statement of every tenant transaction; local to it.
select set_config('muniment.tenant', :tenant, true);

-- name: database_now()
select now() as now;

-- name: server_facts()
select current_setting('server_version') as version, current_user as role, r.rolsuper as superuser,
       r.rolbypassrls as bypasses_rls, current_setting('max_connections')::integer as max_connections,
       exists (select from pg_extension where extname = 'vector') as has_vector
  from pg_roles r where r.rolname = current_user;
