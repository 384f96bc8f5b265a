-- Money: accounts, caps, the ledger, process leases and the shares of in-flight caps; circuits, profiles and the replay cache.
-- depends: 0002_search

set local lock_timeout = '4s';
set local statement_timeout = '60s';

-- LEDGER ---------------------------------------------------------------------------------------------------------------

-- One row a process that may spend; renewed by it, by the database's clock. What an expired one left open, the relay settles.
create table process_leases (
  process_id uuid primary key,
  lease_until timestamptz not null,
  started_at timestamptz not null default now()
);

-- One account a paid provider, in nano-units of its currency. spent + reserved + leased never exceeds cap, but where a meter
-- says that a call cost more than was reserved.
--   reserved  by open entries that are in no slice
--   leased    handed to slices, whatever of it is used
create table budget_accounts (
  provider text primary key,
  currency text not null,
  cap bigint not null check (cap >= 0),
  job_cap bigint check (job_cap >= 0),       -- of each single job
  spent bigint not null default 0,
  reserved bigint not null default 0,
  leased bigint not null default 0
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

insert into budget_accounts (provider, currency, cap) values
  ('jev', 'USD', 10000000000), ('deepseek', 'CNY', 50000000000), ('openai', 'USD', 5000000000),
  ('systemone', 'USD', 10000000000);

-- A part of a cap in the hands of one process: `reads` may come from the last tenth.
create table budget_slices (
  provider text not null references budget_accounts,
  process_id uuid not null,
  reads boolean not null,
  size bigint not null default 0,
  spent bigint not null default 0,
  reserved bigint not null default 0,
  used_at timestamptz not null default now(),
  primary key (provider, process_id, reads)
) with (fillfactor = 50);

-- What a tenant, a store or a job has spent with a provider, and its own cap, if it has one. A job has a row once a cap for
-- jobs was in force.
create table budget_spenders (
  tenant_id uuid not null,
  scope text not null,                       -- tenant | store | job
  scope_id uuid not null,
  provider text not null,
  cap bigint,
  job_cap bigint,                            -- of a tenant: for each of its jobs
  spent bigint not null default 0,
  reserved bigint not null default 0,
  primary key (tenant_id, scope, scope_id, provider)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

-- Every attempt, for ever.
--   state  reserved → settled (the meter's price) | released (it cost nothing) | estimated (nobody knows: its input
--          estimate; a meter's word that comes later corrects it); counted: unpaid from the start
create table budget_entries (
  tenant_id uuid not null,
  entry_id uuid not null,
  provider text not null,
  store_id uuid,
  job_id uuid,
  stage text not null,
  call_class text not null,
  state text not null,
  outcome text,                              -- ok, cached, or why not
  reserve bigint not null default 0,
  input_estimate bigint not null default 0,
  cost bigint not null default 0,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  owner uuid,
  sliced boolean not null default false,
  reply_until timestamptz,                   -- until then a metered reply may still come, whatever became of its owner
  created_at timestamptz not null default now(),
  ended_at timestamptz,
  primary key (tenant_id, entry_id)
) with (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
create index budget_entries_open on budget_entries (owner) where state = 'reserved';
create index budget_entries_job on budget_entries (tenant_id, job_id) where job_id is not null;

-- The same added up by UTC day of the reservation, so that years of entries need not be read.
create table budget_usage (
  tenant_id uuid not null,
  day date not null,
  provider text not null,
  store_id uuid not null,                    -- all zeros: no store
  stage text not null,
  call_class text not null,
  calls bigint not null default 0,
  failed bigint not null default 0,
  cached bigint not null default 0,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  cost bigint not null default 0,
  primary key (tenant_id, day, provider, store_id, stage, call_class)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200,
        autovacuum_vacuum_cost_delay = 0);

-- How many calls of a class a process may have in flight with a provider. The sum of live processes' shares never exceeds the
-- fleet's cap.
create table inflight_shares (
  provider text not null,
  call_class text not null,
  process_id uuid not null,
  share integer not null default 0,
  wanted integer not null default 0,
  primary key (provider, call_class, process_id)
) with (fillfactor = 50);

alter table budget_spenders enable row level security;
alter table budget_spenders force row level security;
create policy tenant on budget_spenders to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on budget_spenders to muniment_owner, muniment_relay using (true) with check (true);

alter table budget_entries enable row level security;
alter table budget_entries force row level security;
create policy tenant on budget_entries to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on budget_entries to muniment_owner, muniment_relay using (true) with check (true);

alter table budget_usage enable row level security;
alter table budget_usage force row level security;
create policy tenant on budget_usage to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on budget_usage to muniment_owner, muniment_relay using (true) with check (true);

-- The ledger is written and corrected, never deleted.
grant select, insert, update on budget_spenders, budget_entries, budget_usage to muniment_app, muniment_relay;
grant select, update on budget_accounts to muniment_app, muniment_relay;
grant select, insert, update, delete on process_leases, budget_slices, inflight_shares to muniment_app, muniment_relay;

-- GATEWAY --------------------------------------------------------------------------------------------------------------

-- Circuits of the fleet (core/models/circuits.py): a provider at its official endpoint, or one other endpoint. A row exists while
-- failures follow each other; open_until is null until there were enough of them.
create table breakers (
  circuit text primary key,
  failures integer not null,
  open_until timestamptz,
  trial_until timestamptz,                   -- a trial is under way until then at the latest
  holder text                                -- of the last trial
) with (fillfactor = 50);

-- Calls and retries begun, by tenth of a second (of the database's epoch).
create table circuit_counts (
  circuit text not null,
  moment bigint not null,
  calls integer not null default 0,
  retries integer not null default 0,
  primary key (circuit, moment)
) with (fillfactor = 50);

-- The operator's profiles of models and embeddings, as JSON without keys; and who may name them.
create table model_profiles (
  name text primary key,
  definition jsonb not null,
  for_all boolean not null default false,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

create table model_grants (
  tenant_id uuid not null references tenants on delete cascade,
  name text not null,                        -- of a profile: goes with it
  primary key (tenant_id, name)
);

-- Recorded replies, for evaluations only. A reply quotes what it was given, so it is the tenant's.
create table model_cache (
  tenant_id uuid not null,
  cache text not null,
  key bytea not null,
  provider text not null,
  reply bytea not null,
  cost bigint not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, cache, key)
);

alter table model_grants enable row level security;
alter table model_grants force row level security;
create policy tenant on model_grants to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on model_grants to muniment_owner, muniment_relay using (true) with check (true);

alter table model_cache enable row level security;
alter table model_cache force row level security;
create policy tenant on model_cache to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on model_cache to muniment_owner, muniment_relay using (true) with check (true);

grant select, insert, update, delete on breakers, circuit_counts to muniment_app, muniment_relay;
grant select on model_profiles, model_grants to muniment_app;
grant select, insert, update, delete on model_profiles, model_grants to muniment_relay;
grant select, insert, update, delete on model_cache to muniment_app, muniment_relay;
