-- Search: document numbers, and the lexical index that ranks exactly (core/search/lexical).
-- depends: 0001_spine

set local lock_timeout = '4s';
set local statement_timeout = '60s';

-- A block's place in its store, from 0 and never given again: it rises with the revision, so the store at a revision is a
-- prefix. Given under the store's row lock.
alter table stores add column next_number bigint not null default 0;
alter table stores add column index_job uuid;  -- the last job that was asked to maintain the index
alter table records add column number bigint;

update records r set number = n.number
  from (select tenant_id, store_id, record_id, revision,
               row_number() over (partition by tenant_id, store_id order by position, ordinal) - 1 as number
          from records) n
 where r.tenant_id = n.tenant_id and r.store_id = n.store_id and r.record_id = n.record_id and r.revision = n.revision;
update stores s set next_number = n.records
  from (select tenant_id, store_id, count(*) as records from records group by tenant_id, store_id) n
 where s.tenant_id = n.tenant_id and s.store_id = n.store_id;
alter table records alter column number set not null;
create unique index records_number on records (tenant_id, store_id, number);

-- The index of a store, a row a build. One build is active; another may be in the making, for another version of the
-- analysis. A search reads this row, then only what it does not know yet.
--   epoch       rises when what is indexed changed: an erasure. Whatever a process knows of the build is void
--   layout      rises when the segments changed but not what they hold: a seal, a merge, a pack
--   sealed_to   numbers below are in segments with a row a term (lexical_postings)
--   loose_from  numbers from here on are in segments of few records, not yet packed
create table lexical_indexes (
  tenant_id uuid not null,
  store_id uuid not null,
  build integer not null,
  version smallint not null,
  state text not null default 'building' check (state in ('building', 'active', 'retired')),
  epoch bigint not null default 0,
  layout bigint not null default 0,
  sealed_to bigint not null default 0,
  loose_from bigint not null default 0,
  primary key (tenant_id, store_id, build)
);
create unique index lexical_indexes_active on lexical_indexes (tenant_id, store_id) where state = 'active';

-- The records [first_number, end_number) of a build as columns (core/search/lexical/columns.py). `packed` holds the postings
-- of a small segment in one piece; those of a large one are in lexical_postings. A retired one has been merged into another.
create table lexical_segments (
  tenant_id uuid not null,
  store_id uuid not null,
  segment_id bigint generated always as identity,
  build integer not null,
  first_number bigint not null,
  end_number bigint not null,
  retired boolean not null default false,
  first_revision bigint not null,
  last_revision bigint not null,
  lengths bytea not null,
  scopes bytea not null,
  ordinals bytea not null,
  pieces bytea not null,
  revisions bytea not null,
  ids bytea not null,
  packed bytea,
  primary key (tenant_id, store_id, segment_id)
);
alter table lexical_segments alter column lengths set storage external, alter column scopes set storage external,
  alter column ordinals set storage external, alter column pieces set storage external, alter column revisions set storage external,
  alter column ids set storage external, alter column packed set storage external;
create index lexical_segments_live on lexical_segments (tenant_id, store_id, build, end_number) where not retired;

-- The documents that hold a term, with how often: a row a term and segment (core/search/lexical/postings.py).
create table lexical_postings (
  tenant_id uuid not null,
  store_id uuid not null,
  segment_id bigint not null,
  term text collate "C" not null,
  postings bytea not null,
  primary key (tenant_id, store_id, segment_id, term)
);
alter table lexical_postings alter column postings set storage external;

-- What a caller must name to see a record, as a small number; 0 is what everyone sees and has no row. '': none to be named.
create table lexical_scopes (
  tenant_id uuid not null,
  store_id uuid not null,
  code integer not null,
  scope text not null,
  workspace_id text not null,
  session_id text not null,
  primary key (tenant_id, store_id, code),
  unique (tenant_id, store_id, scope, workspace_id, session_id)
);

alter table lexical_indexes enable row level security;
alter table lexical_indexes force row level security;
create policy tenant on lexical_indexes to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on lexical_indexes to muniment_owner, muniment_relay using (true) with check (true);

alter table lexical_segments enable row level security;
alter table lexical_segments force row level security;
create policy tenant on lexical_segments to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on lexical_segments to muniment_owner, muniment_relay using (true) with check (true);

alter table lexical_postings enable row level security;
alter table lexical_postings force row level security;
create policy tenant on lexical_postings to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on lexical_postings to muniment_owner, muniment_relay using (true) with check (true);

alter table lexical_scopes enable row level security;
alter table lexical_scopes force row level security;
create policy tenant on lexical_scopes to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on lexical_scopes to muniment_owner, muniment_relay using (true) with check (true);

grant select, insert, update, delete on lexical_indexes, lexical_segments, lexical_postings, lexical_scopes
  to muniment_app, muniment_relay;

-- Vectors and the other routes (core/search/vectors, core/search/finding.py) ---------------------------------------------

alter table stores add column embed_job uuid;  -- the last job that was asked to fill the store's vectors

-- SHA-256 of the text that is embedded: the content, or the title when that is empty.
alter table records add column content bytea;
update records set content =
  sha256(convert_to(coalesce(nullif(canonical::jsonb ->> 'content', ''), canonical::jsonb ->> 'title'), 'UTF8'));
alter table records alter column content set not null;
-- Who else has a text, when it is erased. A hash index: small, and quick to add to.
create index records_content on records using hash (content);
create index records_event on records (tenant_id, store_id, event_at, number);

-- Vectors by text and space; a space is a model with all that changes its vectors (core/models/embedding.py, Profile.space).
-- Little-endian float32, in the row itself up to 2,000 dimensions; searched in memory, so they need no index of their own.
create table vectors (
  tenant_id uuid not null,
  content bytea not null,
  space uuid not null,
  vector bytea not null,
  primary key (tenant_id, content, space)
) with (toast_tuple_target = 8160);
alter table vectors alter column vector set storage external;

-- How far a store is filled: every record numbered below has its vector.
create table vector_sets (
  tenant_id uuid not null,
  store_id uuid not null,
  space uuid not null,
  model text not null,
  dimensions integer,                  -- null until there is a vector
  filled bigint not null default 0,
  primary key (tenant_id, store_id, space)
);

-- The names that a record holds (core/search/entities.py).
create table record_entities (
  tenant_id uuid not null,
  store_id uuid not null,
  entity text collate "C" not null,
  number bigint not null,
  primary key (tenant_id, store_id, entity, number)
);
create index record_entities_number on record_entities (tenant_id, store_id, number);

alter table vectors enable row level security;
alter table vectors force row level security;
create policy tenant on vectors to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on vectors to muniment_owner, muniment_relay using (true) with check (true);

alter table vector_sets enable row level security;
alter table vector_sets force row level security;
create policy tenant on vector_sets to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on vector_sets to muniment_owner, muniment_relay using (true) with check (true);

alter table record_entities enable row level security;
alter table record_entities force row level security;
create policy tenant on record_entities to muniment_app
  using (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid))
  with check (tenant_id = (select nullif(current_setting('muniment.tenant', true), '')::uuid));
create policy system on record_entities to muniment_owner, muniment_relay using (true) with check (true);

grant select, insert, update, delete on vectors, vector_sets, record_entities to muniment_app, muniment_relay;
