-- name: lock_store(tenant, store)
-- The store's row lock gives revisions out one after the other.
select revision, position, next_number, config ->> 'embedding' as embedding from stores
 where tenant_id = :tenant and store_id = :store for update;

-- name: taken_ids(tenant, store, ids)
-- Which of these ids documents, blocks or erased records of the store have. (A look-up each, and an
-- order that only the primary key has: whatever the planner knows of tables that a bulk write is just filling.)
select i.id from unnest(:ids::text[]) as i (id)
  left join lateral (select true as found from documents d
                      where d.tenant_id = :tenant and d.store_id = :store and d.document_id = i.id
                      order by d.revision limit 1) d on true
  left join lateral (select true as found from records r
                      where r.tenant_id = :tenant and r.store_id = :store and r.record_id = i.id
                      order by r.revision limit 1) r on true
  left join lateral (select true as found from erasures e
                      where e.tenant_id = :tenant and e.store_id = :store and e.record_id = i.id limit 1) e on true
 where d.found or r.found or e.found;

-- name: insert_documents(tenant, store, ids, revisions, positions, scopes, workspaces, sessions, dates, events, canonicals, hashes)!
insert into documents (tenant_id, store_id, document_id, revision, position, scope, workspace_id, session_id, date, event_at,
                       state, canonical, sha256)
select :tenant, :store, d.id, d.revision, d.position, d.scope, d.workspace, d.session, d.date, d.event, 'archived', d.canonical,
       d.hash
  from unnest(:ids::text[], :revisions::bigint[], :positions::bigint[], :scopes::text[], :workspaces::text[],
              :sessions::text[], :dates::date[], :events::timestamptz[], :canonicals::text[], :hashes::bytea[])
    as d (id, revision, position, scope, workspace, session, date, event, canonical, hash);

-- name: insert_records(tenant, store, ids, numbers, revisions, positions, ordinals, documents, starts, ends, scopes, workspaces, sessions, dates, events, canonicals, hashes, contents)!
insert into records (tenant_id, store_id, record_id, number, revision, position, ordinal, document_id, start_byte, end_byte,
                     scope, workspace_id, session_id, date, event_at, state, canonical, sha256, content)
select :tenant, :store, r.id, r.number, r.revision, r.position, r.ordinal, r.document, r.start, r."end", r.scope, r.workspace,
       r.session, r.date, r.event, 'active', r.canonical, r.hash, r.content
  from unnest(:ids::text[], :numbers::bigint[], :revisions::bigint[], :positions::bigint[], :ordinals::integer[],
              :documents::text[], :starts::integer[], :ends::integer[], :scopes::text[], :workspaces::text[],
              :sessions::text[], :dates::date[], :events::timestamptz[], :canonicals::text[], :hashes::bytea[], :contents::bytea[])
    as r (id, number, revision, position, ordinal, document, start, "end", scope, workspace, session, date, event, canonical, hash,
          content);

-- name: insert_messages(tenant, store, documents, ordinals, roles, contents, ats)!
insert into messages (tenant_id, store_id, document_id, ordinal, role, content, at)
select :tenant, :store, m.document, m.ordinal, m.role, m.content, m.at
  from unnest(:documents::text[], :ordinals::integer[], :roles::text[], :contents::text[], :ats::text[])
    as m (document, ordinal, role, content, at);

-- name: advance_store(tenant, store, revision, position, next_number, bytes)!
update stores set revision = :revision, position = :position, next_number = :next_number, stored_bytes = greatest(stored_bytes + :bytes, 0),
       updated_at = now()
 where tenant_id = :tenant and store_id = :store;

-- name: get_record(tenant, store, id, revision)
-- The newest version not after the revision, document or block.
select * from (
  (select d.document_id as id, d.revision, d.canonical, d.sha256, true as is_document from documents d
    where d.tenant_id = :tenant and d.store_id = :store and d.document_id = :id
      and (:revision::bigint is null or d.revision <= :revision::bigint)
    order by d.revision desc limit 1)
  union all
  (select r.record_id, r.revision, r.canonical, r.sha256, false from records r
    where r.tenant_id = :tenant and r.store_id = :store and r.record_id = :id
      and (:revision::bigint is null or r.revision <= :revision::bigint)
    order by r.revision desc limit 1)) found;

-- name: get_erasure(tenant, store, id)
select erased_at, revision from erasures where tenant_id = :tenant and store_id = :store and record_id = :id;

-- name: list_records(tenant, store, position, ordinal, revision, limit)
-- In write order, each document before its blocks; keyset (position, ordinal), documents at ordinal -1.
select * from (
  (select d.document_id as id, 'memory-document' as kind, d.revision, d.position, -1 as ordinal, d.scope, d.workspace_id,
          d.session_id, d.date, d.event_at, d.state, d.sha256, octet_length(d.canonical) as bytes, null::text as document_id
     from documents d
    where d.tenant_id = :tenant and d.store_id = :store and d.position > :position::bigint
      and d.revision <= :revision::bigint
    order by d.position limit :limit)
  union all
  (select r.record_id, 'memory-record', r.revision, r.position, r.ordinal, r.scope, r.workspace_id, r.session_id, r.date,
          r.event_at, r.state, r.sha256, octet_length(r.canonical), r.document_id
     from records r
    where r.tenant_id = :tenant and r.store_id = :store and (r.position, r.ordinal) > (:position::bigint, :ordinal::integer)
      and r.revision <= :revision::bigint
    order by r.position, r.ordinal limit :limit)) listed
 order by position, ordinal limit :limit;

-- name: get_messages(tenant, store, document, after, limit)
select ordinal, role, content, at from messages
 where tenant_id = :tenant and store_id = :store and document_id = :document and ordinal > :after
 order by ordinal limit :limit;

-- name: store_revision(tenant, store)
select revision from stores where tenant_id = :tenant and store_id = :store;

-- name: documents_to_erase(tenant, store, id, session, workspace)
-- By document or block id, or by session and workspace; a block takes its document along, which holds the same text. One of
-- the parts is executed.
(select d.document_id as id from documents d
  where :id::text is not null and d.tenant_id = :tenant and d.store_id = :store and d.document_id = :id::text
  order by d.revision limit 1)
union all
(select r.document_id from records r
  where :id::text is not null and r.tenant_id = :tenant and r.store_id = :store and r.record_id = :id::text
  order by r.revision limit 1)
union all
select d.document_id from documents d
 where :id::text is null and d.tenant_id = :tenant and d.store_id = :store and d.session_id = :session::text
   and (:workspace::text is null or d.workspace_id = :workspace::text)
union all
select d.document_id from documents d
 where :id::text is null and :session::text is null and d.tenant_id = :tenant and d.store_id = :store
   and d.workspace_id = :workspace::text;

-- name: erase_documents(tenant, store, ids, revision)
-- Everything of these documents goes; their ids and their blocks' stay as tombstones.
with gone_records as (
  delete from records where tenant_id = :tenant and store_id = :store and document_id = any (:ids::text[])
  returning record_id, octet_length(canonical) as bytes),
gone_documents as (
  delete from documents where tenant_id = :tenant and store_id = :store and document_id = any (:ids::text[])
  returning document_id, octet_length(canonical) as bytes),
gone_messages as (
  delete from messages where tenant_id = :tenant and store_id = :store and document_id = any (:ids::text[])
  returning octet_length(role) + octet_length(content) as bytes),
tombstones as (
  insert into erasures (tenant_id, store_id, record_id, revision)
  select :tenant, :store, g.id, :revision
    from (select record_id as id from gone_records union select document_id from gone_documents) g
  on conflict (tenant_id, store_id, record_id) do nothing)
select (select count(*) from gone_documents) as documents, (select count(*) from gone_records) as records,
       (select count(*) from gone_messages) as messages,
       ((select coalesce(sum(bytes), 0) from gone_records) + (select coalesce(sum(bytes), 0) from gone_documents)
        + (select coalesce(sum(bytes), 0) from gone_messages))::bigint as bytes;

-- name: end_jobs_of_store(tenant, store, jobs)!
-- What still waits for a store that is erased ends as not found, but for `jobs`: those of the claim at work. The store's row
-- is locked, as by every end of a job that changes it (`Done.locked`); nothing else of the store is yet. In the order of
-- everything that locks several jobs and waits: children by id, then jobs without a parent by id (as cancel_job, and as
-- whatever ends a child and then tells its parent).
with open as materialized (
  select tenant_id, job_id from jobs
   where tenant_id = :tenant and store_id = :store and finished_at is null and job_id <> all (:jobs::uuid[])
   order by parent_id is null, job_id for update)
update jobs j set state = 'failed', finished_at = now(), due_at = now() + make_interval(secs => j.keep_seconds),
       reason = 'store-erased', run_at = null, lease_token = null,
       error = jsonb_build_object('type', '/problems/not-found', 'title', 'There is no such thing', 'status', 404,
                                  'detail', 'the store was erased')
  from open o where j.tenant_id = o.tenant_id and j.job_id = o.job_id;

-- name: forget_texts(tenant, store)!
-- What was erased must not live on in the bodies of writes that are done, nor in what reads have found. Rows that the sweep
-- holds are passed over: it is pruning them.
with done as materialized (
  select job_id, kind from jobs
   where tenant_id = :tenant and store_id = :store and state = 'succeeded'
     and kind in ('write', 'conversation', 'batch', 'read', 'search')
     for update skip locked),
bodies as (
  delete from job_payloads p using done d where p.tenant_id = :tenant and p.job_id = d.job_id)
delete from job_results r using done d where r.tenant_id = :tenant and r.job_id = d.job_id and d.kind in ('read', 'search');

-- name: allow_long_statements()!
-- An erasure may take longer than the role's time-out, up to its own deadline.
select set_config('statement_timeout', '600000', true);

-- name: erase_store(tenant, store)
-- The store with all it holds.
with gone_records as (delete from records where tenant_id = :tenant and store_id = :store returning 1),
gone_documents as (delete from documents where tenant_id = :tenant and store_id = :store returning 1),
gone_messages as (delete from messages where tenant_id = :tenant and store_id = :store returning 1),
gone_erasures as (delete from erasures where tenant_id = :tenant and store_id = :store),
gone_uploads as (
  delete from uploads u using imports i
   where i.tenant_id = :tenant and i.store_id = :store and u.tenant_id = i.tenant_id and u.import_id = i.import_id),
gone_ids as (
  delete from import_ids k using imports i
   where i.tenant_id = :tenant and i.store_id = :store and k.tenant_id = i.tenant_id and k.import_id = i.import_id),
gone_imports as (delete from imports where tenant_id = :tenant and store_id = :store),
gone_store as (delete from stores where tenant_id = :tenant and store_id = :store)
select (select count(*) from gone_documents) as documents, (select count(*) from gone_records) as records,
       (select count(*) from gone_messages) as messages;

-- name: reading_config(tenant, store)
select revision, config, policy_hash from stores where tenant_id = :tenant and store_id = :store;

-- name: export_records(tenant, store, position, ordinal, revision, limit, bytes)
-- As list_records, with the records' own bytes; a page ends with the record that makes it larger than `bytes`.
-- `conversation`: the id of a document that has messages.
select position, ordinal, canonical, conversation from (
  select position, ordinal, canonical, conversation,
         sum(octet_length(canonical)) over (order by position, ordinal) - octet_length(canonical) as before
    from (
      (select d.position, -1 as ordinal, d.canonical,
              (select m.document_id from messages m
                where m.tenant_id = :tenant and m.store_id = :store and m.document_id = d.document_id limit 1) as conversation
         from documents d
        where d.tenant_id = :tenant and d.store_id = :store and d.position > :position::bigint
          and d.revision <= :revision::bigint
        order by d.position limit :limit)
      union all
      (select r.position, r.ordinal, r.canonical, null from records r
        where r.tenant_id = :tenant and r.store_id = :store
          and (r.position, r.ordinal) > (:position::bigint, :ordinal::integer) and r.revision <= :revision::bigint
        order by r.position, r.ordinal limit :limit)) listed
   order by position, ordinal limit :limit) counted
 where before < :bytes::bigint
 order by position, ordinal;
