-- What the exporter and `muniment doctor` ask.

-- name: set_inflight_limits(interactive, bulk)!
-- For the view `backlog`, within this transaction.
select set_config('muniment.inflight_interactive', :interactive, true), set_config('muniment.inflight_bulk', :bulk, true);

-- name: process_counts()
select role, alive, clock_skew_ms from process_counts;

-- name: role_facts()
-- What would let the connected role past row-level security: being superuser, BYPASSRLS, a member of a table's owner, or
-- of a role that the policy `system` lets see every tenant.
select current_user as role, r.rolsuper as superuser, r.rolbypassrls as bypasses_rls,
       (select count(*) from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v')
           and pg_has_role(c.relowner, 'member'))::integer as owned,
       exists (select from pg_policy p cross join unnest(p.polroles) as m (oid)
                where p.polname = 'system' and pg_has_role(m.oid, 'member')) as sees_all
  from pg_roles r where r.rolname = current_user;

-- name: missing_role_settings()
-- Of what sql/roles.sql sets at the roles: what the plans of server functions and views rest on.
select w.role, w.setting
  from (values ('muniment_app', 'enable_seqscan=off'), ('muniment_relay', 'enable_seqscan=off'),
               ('muniment_exporter', 'plan_cache_mode=force_custom_plan')) as w (role, setting)
 where not exists (select from pg_roles r where r.rolname = w.role and w.setting = any (r.rolconfig))
 order by w.role;

-- name: connection_facts()
-- Clients connected now, and how many the server takes of roles that are not superusers. (An ordinary role is not told
-- the backend_type of others' sessions.)
select (select count(*) from pg_stat_activity where datid is not null and usesysid is not null)::integer as used,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - coalesce(current_setting('reserved_connections', true), '0')::integer as most;

-- name: clock()
select clock_timestamp() as now;

-- name: hold_connection(seconds)!
select pg_sleep(:seconds);

-- name: leader(name)
-- Positive while the lease holds.
select holder, extract(epoch from lease_until - now())::float8 as left_seconds from leases where name = :name;

-- name: stuck_jobs(limit)
-- Jobs that need a look, by kind of trouble; ages by the database's clock.
(select 'dead' as trouble, j.tenant_id, j.job_id, j.queue, j.kind, extract(epoch from now() - j.finished_at)::float8 as seconds,
        j.attempt, coalesce(j.error ->> 'detail', j.reason) as detail
   from jobs j where j.state = 'dead' order by j.finished_at limit :limit)
union all
(select 'deferred', j.tenant_id, j.job_id, j.queue, j.kind, extract(epoch from now() - j.ready_at)::float8, j.attempt, j.reason
   from jobs j where j.finished_at is null and j.state = 'deferred' order by j.ready_at limit :limit)
union all
(select 'orphaned', j.tenant_id, j.job_id, j.queue, j.kind, extract(epoch from now() - j.ready_at)::float8, j.attempt,
        'it waits for children, and none is open'
   from jobs j
  where j.finished_at is null and j.state = 'waiting' and j.ready_at < now() - interval '120 s'
    and not exists (select from jobs c where c.tenant_id = j.tenant_id and c.parent_id = j.job_id and c.finished_at is null)
  order by j.ready_at limit :limit)
union all
(select case when j.due_at < now() - interval '30 s' then 'abandoned' else 'overrunning' end, j.tenant_id, j.job_id, j.queue,
        j.kind, extract(epoch from now() - j.started_at)::float8, j.attempt, 'held by ' || j.lease_owner
   from jobs j
  where j.finished_at is null and j.state = 'running'
    and (j.due_at < now() - interval '30 s' or j.deadline_at < now() - interval '60 s')
  order by j.started_at limit :limit);
