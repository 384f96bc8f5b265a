-- name: set_role_password(name, password)!
select set_config(:name, :password, false);

-- name: database_exists(database)
select datname from pg_database where datname = :database;

-- name: lock_migrations(name)!
select pg_advisory_xact_lock(hashtext(:name));

-- name: applied_migrations()
select migration_id from _yoyo_migration;

-- name: functions_digest()
select digest from function_versions;

-- name: record_functions(digest)!
insert into function_versions (only_row, digest) values (true, :digest)
on conflict (only_row) do update set digest = excluded.digest, applied_at = now();
