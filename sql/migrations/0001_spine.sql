-- The spine: tenants and keys, stores, jobs, records, imports, and the leases of the fleet.
-- depends:

set local lock_timeout = '4s';
set local statement_timeout = '60s';

create extension if not exists vector;

-- Fleet tables: the listed exceptions to "every primary key starts with tenant_id" ------------------------------------

create table tenants (
  tenant_id uuid primary key,
  name text not null unique,
  weight smallint not null default 1 check (weight between 1 and 100),
  max_queued_jobs integer not null default 100000,
  max_queued_bytes bigint not null default 1073741824,
  max_stored_bytes bigint,
  max_requests_per_second integer,
  created_at timestamptz not null default now()
);

create table operator_keys (
  key_id uuid primary key,
  key_hash bytea not null unique,
  name text not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz
);

-- A lease by name; the epoch rises with each new holder and never falls (the relay's leadership).
create table leases (
  name text primary key,
  holder text not null,
  epoch bigint not null default 1,
  lease_until timestamptz not null
);

-- Who works, by its own report every few seconds: what `muniment doctor` and /admin/queues read.
create table processes (
  process_id uuid primary key,
  role text not null,
  host text not null,
  pid integer not null,
  queues text[] not null default '{}',
  started_at timestamptz not null default now(),
  seen_at timestamptz not null default now(),
  clock_skew_ms integer not null default 0,
  jobs_done bigint not null default 0
);

-- Which version of sql/functions is installed.
create table function_versions (
  only_row boolean primary key default true check (only_row),
  digest text not null,
  applied_at timestamptz not null default now()
);
grant select on function_versions, _yoyo_migration to muniment_app, muniment_relay, muniment_exporter;

-- Tenant tables --------------------------------------------------------------------------------------------------------

create table api_keys (
  tenant_id uuid not null references tenants,
  key_id uuid not null,
  key_hash bytea not null unique,
  name text not null,
  scopes text[] not null,
  stores text[],                       -- null: every store of the tenant
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  primary key (tenant_id, key_id)
);

create table stores (
  tenant_id uuid not null references tenants,
  store_id uuid not null,
  name text not null,
  config jsonb not null,               -- the effective configuration
  policy_hash text not null,
  version integer not null default 1,  -- of the configuration: its ETag
  revision bigint not null default 0,
  position bigint not null default 0,  -- of the last document written
  stored_bytes bigint not null default 0,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  primary key (tenant_id, store_id),
  unique (tenant_id, name)
);

-- One row a job; bodies and answers are kept apart so that this table stays narrow.
--   state    queued → running → (waiting ⇄ running) → succeeded | failed | cancelled | dead; running → deferred → queued
--   run_at   set while the row is parked (a retry's delay, a deferral); null when it may run
--   sent_at  set while a wake-up of its own is owed to it, or while it runs
--   due_at   when the sweep must look at this row again, whatever its state: the end of the lease while running, the
--            moment to send again while sent, run_at while parked, the next retention step when finished
create table jobs (
  tenant_id uuid not null,
  job_id uuid not null,
  seq bigint generated always as identity,
  store_id uuid,
  parent_id uuid,
  kind text not null,
  queue text not null,
  state text not null default 'queued'
    check (state in ('queued', 'running', 'waiting', 'deferred', 'succeeded', 'failed', 'cancelled', 'dead')),
  reason text,
  attempt smallint not null default 0,
  max_attempts smallint not null default 5,
  crashes smallint not null default 0,
  created_at timestamptz not null default now(),
  ready_at timestamptz not null default now(),
  run_at timestamptz,
  sent_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz,
  deadline_at timestamptz,
  due_at timestamptz,
  lease_token uuid,
  lease_owner text,
  open_children integer not null default 0,
  progress_done bigint,
  progress_total bigint,
  progress_unit text,
  payload_bytes integer not null,
  keep_seconds integer not null default 86400,
  waiter text,
  error jsonb,
  trace text,
  primary key (tenant_id, job_id)
) with (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What the relay may send: fair between tenants, in order of acceptance within one.
create index jobs_ready on jobs (queue, tenant_id, seq)
  where state = 'queued' and sent_at is null and run_at is null;
-- A tenant's backlog, and how much of it is in flight (sent_at is not null).
create index jobs_open on jobs (tenant_id, queue, sent_at) where finished_at is null;
-- Everything that some clock will change.
create index jobs_due on jobs (due_at) where finished_at is null and due_at is not null;
create index jobs_old on jobs (due_at) where finished_at is not null;
-- A store's unfinished writes, in order of acceptance.
create index jobs_writes on jobs (tenant_id, store_id, seq)
  where finished_at is null and queue in ('write.interactive', 'write.bulk');
create index jobs_children on jobs (tenant_id, parent_id) where parent_id is not null;
-- Jobs that have killed a worker run one at a time a queue.
create index jobs_suspect on jobs (queue, sent_at) where crashes > 0 and finished_at is null;
create index jobs_dead on jobs (queue, finished_at) where state = 'dead';

create table job_payloads (
  tenant_id uuid not null,
  job_id uuid not null,
  payload text not null,
  primary key (tenant_id, job_id)
);

create table job_results (
  tenant_id uuid not null,
  job_id uuid not null,
  result text not null,
  primary key (tenant_id, job_id)
);

create table idempotency_keys (
  tenant_id uuid not null,
  route text not null,
  key text not null,
  body_sha256 bytea not null,
  job_id uuid not null,
  answered smallint,                   -- 202 once that was the answer; null while none was given
  created_at timestamptz not null default now(),
  primary key (tenant_id, route, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

-- Versions, not rows that change: (id, revision). `canonical` is the record's exact JSON, `sha256` its hash.
create table documents (
  tenant_id uuid not null,
  store_id uuid not null,
  document_id text not null,
  revision bigint not null,
  position bigint not null,
  scope text not null,
  workspace_id text,
  session_id text,
  date date,
  event_at timestamptz not null,
  state text not null,
  canonical text not null,
  sha256 bytea not null,
  primary key (tenant_id, store_id, document_id, revision)
);
create index documents_position on documents (tenant_id, store_id, position);
create index documents_session on documents (tenant_id, store_id, session_id) where session_id is not null;

create table records (
  tenant_id uuid not null,
  store_id uuid not null,
  record_id text not null,
  revision bigint not null,
  position bigint not null,            -- the document's
  ordinal integer not null,            -- the block's place in it
  document_id text not null,
  start_byte integer not null,
  end_byte integer not null,
  scope text not null,
  workspace_id text,
  session_id text,
  date date,
  event_at timestamptz not null,
  state text not null,
  canonical text not null,
  sha256 bytea not null,
  primary key (tenant_id, store_id, record_id, revision)
);
create index records_position on records (tenant_id, store_id, position, ordinal);
create index records_document on records (tenant_id, store_id, document_id);

create table messages (
  tenant_id uuid not null,
  store_id uuid not null,
  document_id text not null,
  ordinal integer not null,
  role text not null,
  content text not null,
  at text,                             -- as the client wrote it
  primary key (tenant_id, store_id, document_id, ordinal)
);

-- What was erased answers 410, and its id is never given again.
create table erasures (
  tenant_id uuid not null,
  store_id uuid not null,
  record_id text not null,
  revision bigint not null,            -- of the erasure
  erased_at timestamptz not null default now(),
  primary key (tenant_id, store_id, record_id)
);

create table imports (
  tenant_id uuid not null,
  import_id uuid not null,
  store_id uuid not null,
  job_id uuid,
  state text not null default 'uploading'
    check (state in ('uploading', 'ready', 'running', 'paused', 'succeeded', 'failed', 'cancelled')),
  filename text,
  size bigint not null,
  received bigint not null default 0,
  format text,
  next_item bigint not null default 0, -- conversations of the archive handled so far: where a run goes on
  report jsonb,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  finished_at timestamptz,
  primary key (tenant_id, import_id)
);
create index imports_age on imports (updated_at);

create table uploads (
  tenant_id uuid not null,
  import_id uuid not null,
  chunk integer not null,              -- of 1 MiB each
  bytes bytea not null,
  primary key (tenant_id, import_id, chunk)
);
alter table uploads alter column bytes set storage external;

-- Row-level security: the second wall. `tenant` for the app role; `system` because FORCE binds the owner too, and without
-- it the exporter's views read nothing and a migration's UPDATE touches no row, silently. -----------------------------

alter table api_keys enable row level security;
alter table api_keys force row level security;
create policy tenant on api_keys to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on api_keys to muniment_owner, muniment_relay using (true) with check (true);

alter table stores enable row level security;
alter table stores force row level security;
create policy tenant on stores to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on stores to muniment_owner, muniment_relay using (true) with check (true);

alter table jobs enable row level security;
alter table jobs force row level security;
create policy tenant on jobs to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on jobs to muniment_owner, muniment_relay using (true) with check (true);

alter table job_payloads enable row level security;
alter table job_payloads force row level security;
create policy tenant on job_payloads to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on job_payloads to muniment_owner, muniment_relay using (true) with check (true);

alter table job_results enable row level security;
alter table job_results force row level security;
create policy tenant on job_results to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on job_results to muniment_owner, muniment_relay using (true) with check (true);

alter table idempotency_keys enable row level security;
alter table idempotency_keys force row level security;
create policy tenant on idempotency_keys to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on idempotency_keys to muniment_owner, muniment_relay using (true) with check (true);

alter table documents enable row level security;
alter table documents force row level security;
create policy tenant on documents to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on documents to muniment_owner, muniment_relay using (true) with check (true);

alter table records enable row level security;
alter table records force row level security;
create policy tenant on records to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on records to muniment_owner, muniment_relay using (true) with check (true);

alter table messages enable row level security;
alter table messages force row level security;
create policy tenant on messages to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on messages to muniment_owner, muniment_relay using (true) with check (true);

alter table erasures enable row level security;
alter table erasures force row level security;
create policy tenant on erasures to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on erasures to muniment_owner, muniment_relay using (true) with check (true);

alter table imports enable row level security;
alter table imports force row level security;
create policy tenant on imports to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on imports to muniment_owner, muniment_relay using (true) with check (true);

alter table uploads enable row level security;
alter table uploads force row level security;
create policy tenant on uploads to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on uploads to muniment_owner, muniment_relay using (true) with check (true);

-- Grants: the app works on tenant tables and reports itself; the relay runs queues and serves operators; the exporter
-- sees aggregates only. ------------------------------------------------------------------------------------------------

grant select, insert, update, delete on
  stores, jobs, job_payloads, job_results, idempotency_keys, documents, records, messages, erasures, imports, uploads
  to muniment_app, muniment_relay;
grant select on api_keys to muniment_app;
grant select, insert, update, delete on tenants, operator_keys, api_keys to muniment_relay;
grant select, insert, update, delete on leases, processes to muniment_relay;
grant select, insert, update, delete on processes to muniment_app;
