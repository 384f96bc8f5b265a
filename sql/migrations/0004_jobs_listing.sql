-- Listing jobs by state without walking a tenant's rows, and imports that read on from their place.
-- depends: 0003_money

set local lock_timeout = '4s';
set local statement_timeout = '60s';

-- The states that few jobs are in, newest first. Its predicate names only `state`, which other indexes name as well: no
-- statement loses a heap-only update to it, and a job that is accepted, claimed and succeeds is never in it.
create index jobs_rare on jobs (tenant_id, state, job_id)
  where state in ('waiting', 'deferred', 'failed', 'cancelled', 'dead');

-- Where the reading goes on (core/archives/place.py). Null: from the start, passing over next_item things.
alter table imports add column place jsonb;

-- The conversations of an import's archive that were handled, as digests of their ids, 16 bytes each: one that comes again is
-- left out. A row each time the import's place moves; first_item is the place before.
create table import_ids (
  tenant_id uuid not null,
  import_id uuid not null,
  first_item bigint not null,
  digests bytea not null,
  primary key (tenant_id, import_id, first_item)
);
alter table import_ids alter column digests set storage external;

alter table import_ids enable row level security;
alter table import_ids force row level security;
create policy tenant on import_ids to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on import_ids to muniment_owner, muniment_relay using (true) with check (true);

grant select, insert, update, delete on import_ids to muniment_app, muniment_relay;
