-- The four roles (architecture.md §3). Run once a cluster by a role that may create roles, before the first migration.
-- Passwords come from the settings muniment.password_<role> of the session; an unset one leaves the role's password as it is.
-- The app role owns nothing and has no BYPASSRLS: row-level security is its second wall.
do $roles$
declare
  name text;
  password text;
begin
  foreach name in array array['owner', 'app', 'relay', 'exporter'] loop
    if not exists (select from pg_roles where rolname = 'muniment_' || name) then
      execute format('create role %I login nosuperuser nocreatedb nocreaterole noinherit nobypassrls', 'muniment_' || name);
    end if;
    password := nullif(current_setting('muniment.password_' || name, true), '');
    if password is not null then
      execute format('alter role %I login password %L', 'muniment_' || name, password);
    end if;
    execute format('alter role %I set timezone = ''UTC''', 'muniment_' || name);
    execute format('alter role %I set idle_in_transaction_session_timeout = ''30s''', 'muniment_' || name);
    if name <> 'owner' then
      -- At the role, not as start-up options: a pooler refuses or ignores those.
      execute format('alter role %I set statement_timeout = ''60s''', 'muniment_' || name);
      execute format('alter role %I set lock_timeout = ''20s''', 'muniment_' || name);
    end if;
    if name in ('app', 'relay') then
      -- A session keeps the plans of server functions: one made while a table was small would walk all of it ever after.
      execute format('alter role %I set enable_seqscan = off', 'muniment_' || name);
    elsif name = 'exporter' then
      -- Its few statements look at whole tables: they are planned anew each time, for what is there now.
      execute format('alter role %I set plan_cache_mode = force_custom_plan', 'muniment_' || name);
    end if;
  end loop;
end
$roles$;
