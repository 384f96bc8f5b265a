-- The lexical index (core/search/lexical). Statements that return bytes are run in the binary protocol.

-- name: lexical_state(tenant, store, version, build, epoch, layout, known, named, small, have, terms, workspace, session)
-- What a search must know, in one snapshot: the store, its active build of the version (null: none), the codes of what the
-- caller sees, and a row a segment: all of them when the layout differs from the caller's, else those that end beyond
-- `known`. Columns come for the latter only (ids, the largest, when the caller has those before, `named` above 0, or when the
-- store has at most `small` records), packed postings for segments that the caller does not have. Of another build or epoch
-- the caller knows nothing. `terms` (null: none): their postings in each sealed segment, in that order, for one who comes with
-- nothing; else lexical_postings gives what is lacking.
select s.revision, s.next_number, i.build, i.epoch, i.layout, i.loose_from,
       case when :workspace::text is null and :session::text is null then null else array(
         select c.code from lexical_scopes c
          where c.tenant_id = :tenant and c.store_id = :store and c.scope = 'project' and c.workspace_id = :workspace::text
         union all
         select c.code from lexical_scopes c
          where c.tenant_id = :tenant and c.store_id = :store and c.scope = 'session' and c.workspace_id = ''
            and c.session_id = :session::text
         union all
         select c.code from lexical_scopes c
          where c.tenant_id = :tenant and c.store_id = :store and c.scope = 'session' and c.workspace_id = :workspace::text
            and c.session_id = :session::text) end as codes,
       g.segment_id, g.first_number, g.end_number, g.first_revision, g.last_revision, g.packed is not null as is_packed,
       case when g.end_number > k.known then g.lengths end as lengths,
       case when g.end_number > k.known then g.scopes end as scopes,
       case when g.end_number > k.known then g.ordinals end as ordinals,
       case when g.end_number > k.known then g.pieces end as pieces,
       case when g.end_number > k.known and (s.next_number <= :small::bigint or (k.same and :named::bigint > 0))
            then g.ids end as ids,
       case when not k.same or g.segment_id <> all (:have::bigint[]) then g.packed end as packed,
       case when g.packed is null and (select :terms::text[]) is not null then array(
         select p.postings
           from unnest((select :terms::text[])) with ordinality as t (term, place)
           left join lateral (
             select l.postings from lexical_postings l
              where l.tenant_id = :tenant and l.store_id = :store and l.segment_id = g.segment_id and l.term = t.term
              limit 1) p on true
          order by t.place) end as postings
  from stores s
  left join lexical_indexes i
    on i.tenant_id = s.tenant_id and i.store_id = s.store_id and i.state = 'active' and i.version = :version::smallint
 cross join lateral (
   select i.build = :build::integer and i.epoch = :epoch::bigint as same,
          case when i.build = :build::integer and i.epoch = :epoch::bigint then :known::bigint else 0 end as known,
          case when i.build = :build::integer and i.epoch = :epoch::bigint and i.layout = :layout::bigint
               then :known::bigint else 0 end as beyond) k
  left join lexical_segments g
    on g.tenant_id = s.tenant_id and g.store_id = s.store_id and g.build = i.build and not g.retired
       and g.end_number > k.beyond
 where s.tenant_id = :tenant and s.store_id = :store
 order by g.first_number;

-- name: lexical_postings(tenant, store, build, segments, terms)
-- The terms' postings in these segments; epoch and layout of the same snapshot say whether these are still the segments.
-- (Lists within a select: how long they are would make the planner plan each time anew, which takes longer than it runs.)
select i.epoch, i.layout, p.segment_id, p.term, p.postings
  from lexical_indexes i
  left join lexical_postings p
    on p.tenant_id = i.tenant_id and p.store_id = i.store_id and p.segment_id = any ((select :segments::bigint[])::bigint[])
       and p.term = any ((select :terms::text[])::text[])
 where i.tenant_id = :tenant and i.store_id = :store and i.build = :build::integer;

-- name: lexical_ids(tenant, store, build, named)
-- The ids of the records from `named` on, a row a segment; epoch and layout as above.
select i.epoch, i.layout, g.first_number, g.end_number, g.ids
  from lexical_indexes i
  left join lexical_segments g
    on g.tenant_id = i.tenant_id and g.store_id = i.store_id and g.build = i.build and not g.retired
       and g.end_number > :named::bigint
 where i.tenant_id = :tenant and i.store_id = :store and i.build = :build::integer
 order by g.first_number;

-- name: ids_of_numbers(tenant, store, numbers)
-- In one row, in order of numbers, parted by spaces: a row each takes twice the time.
select coalesce(string_agg(number::text, ' ' order by number), '') as numbers,
       coalesce(string_agg(record_id, ' ' order by number), '') as ids
  from records where tenant_id = :tenant and store_id = :store and number = any (:numbers::bigint[]);

-- name: segment_revisions(tenant, store, segment)
select first_revision, revisions from lexical_segments
 where tenant_id = :tenant and store_id = :store and segment_id = :segment::bigint;

-- name: lexical_indexes(tenant, store)
-- The builds of a store with the version that its configuration asks for, the newest first.
select i.build, i.version, i.state, i.epoch, i.layout, i.sealed_to, i.loose_from
  from lexical_indexes i where i.tenant_id = :tenant and i.store_id = :store order by i.build desc;

-- name: wanted_index(tenant, store)
select coalesce((config -> 'index' ->> 'version')::smallint, 1::smallint) as version, next_number
  from stores where tenant_id = :tenant and store_id = :store;

-- name: insert_index(tenant, store, build, version, state)!
insert into lexical_indexes (tenant_id, store_id, build, version, state)
values (:tenant, :store, :build, :version, :state);

-- name: move_index(tenant, store, build, sealed_to, loose_from, layout)!
-- `layout`: by how much it rises.
update lexical_indexes set sealed_to = :sealed_to, loose_from = :loose_from, layout = layout + :layout
 where tenant_id = :tenant and store_id = :store and build = :build;

-- name: set_index_state(tenant, store, build, state)!
update lexical_indexes set state = :state, layout = layout + 1
 where tenant_id = :tenant and store_id = :store and build = :build;

-- name: raise_epoch(tenant, store)!
update lexical_indexes set epoch = epoch + 1 where tenant_id = :tenant and store_id = :store;

-- name: insert_segment(tenant, store, build, first, end, first_revision, last_revision, lengths, scopes, ordinals, pieces, revisions, ids, packed)
insert into lexical_segments (tenant_id, store_id, build, first_number, end_number, first_revision, last_revision, lengths,
                              scopes, ordinals, pieces, revisions, ids, packed)
values (:tenant, :store, :build, :first, :end, :first_revision, :last_revision, :lengths, :scopes, :ordinals, :pieces,
        :revisions, :ids, :packed)
returning segment_id;

-- name: packed_segments(tenant, store, build, first, end)
-- Within the range, in order, with all they hold.
select * from lexical_segments
 where tenant_id = :tenant and store_id = :store and build = :build and not retired and packed is not null
   and end_number > :first and end_number <= :end order by end_number;

-- name: sealed_segments(tenant, store, build)
-- Where they lie; what they hold may be much.
select segment_id, first_number, end_number from lexical_segments
 where tenant_id = :tenant and store_id = :store and build = :build and not retired and packed is null order by end_number;

-- name: segment_columns(tenant, store, segments)
-- Of those that are still in use.
select segment_id, first_number, end_number, first_revision, lengths, scopes, ordinals, pieces, revisions, ids
  from lexical_segments
 where tenant_id = :tenant and store_id = :store and segment_id = any (:segments::bigint[]) and not retired
 order by end_number;

-- name: delete_segments(tenant, store, segments)!
delete from lexical_segments where tenant_id = :tenant and store_id = :store and segment_id = any (:segments::bigint[]);

-- name: retire_segments(tenant, store, segments)!
update lexical_segments set retired = true
 where tenant_id = :tenant and store_id = :store and segment_id = any (:segments::bigint[]) and not retired;

-- name: insert_postings(tenant, store, segment, terms, blobs)!
-- (COPY is not to be had under row-level security.)
insert into lexical_postings (tenant_id, store_id, segment_id, term, postings)
select :tenant, :store, :segment, n.term, n.blob from unnest(:terms::text[], :blobs::bytea[]) as n (term, blob);

-- name: segment_postings(tenant, store, segment, after, limit)
-- A page of one segment's terms.
select term, postings from lexical_postings
 where tenant_id = :tenant and store_id = :store and segment_id = :segment and term > :after
 order by term limit :limit;

-- name: garbage(tenant, store)
-- Segments that nothing reads any more: retired ones, and those of retired builds.
select g.segment_id from lexical_segments g
  join lexical_indexes i on i.tenant_id = g.tenant_id and i.store_id = g.store_id and i.build = g.build
 where g.tenant_id = :tenant and g.store_id = :store and (g.retired or i.state = 'retired');

-- name: delete_postings(tenant, store, segment, limit)!
-- The segment's first terms, as a range: a join would be planned for the table as it was when the session was young.
delete from lexical_postings p
 where p.tenant_id = :tenant and p.store_id = :store and p.segment_id = :segment
   and p.term <= (select max(d.term) from (
         select d.term from lexical_postings d
          where d.tenant_id = :tenant and d.store_id = :store and d.segment_id = :segment order by d.term limit :limit) d);

-- name: delete_retired_indexes(tenant, store)!
delete from lexical_indexes i
 where i.tenant_id = :tenant and i.store_id = :store and i.state = 'retired'
   and not exists (select from lexical_segments g where g.tenant_id = i.tenant_id and g.store_id = i.store_id
                      and g.build = i.build);

-- name: scope_codes(tenant, store, scopes, workspaces, sessions)
-- A code for each of these, new ones added. Under the store's row lock.
with wanted as (
  select w.scope, w.workspace, w.session
    from unnest(:scopes::text[], :workspaces::text[], :sessions::text[]) as w (scope, workspace, session)),
known as (
  select c.code, c.scope, c.workspace_id, c.session_id from wanted w
    join lexical_scopes c on c.tenant_id = :tenant and c.store_id = :store and c.scope = w.scope
         and c.workspace_id = w.workspace and c.session_id = w.session),
added as (
  insert into lexical_scopes (tenant_id, store_id, code, scope, workspace_id, session_id)
  select :tenant, :store,
         (select coalesce(max(c.code), 0) from lexical_scopes c where c.tenant_id = :tenant and c.store_id = :store)
           + row_number() over (),
         w.scope, w.workspace, w.session
    from wanted w
   where not exists (select from known k where k.scope = w.scope and k.workspace_id = w.workspace
                        and k.session_id = w.session)
  returning code, scope, workspace_id, session_id)
select * from known union all select * from added;

-- name: drop_unused_scopes(tenant, store)!
-- After an erasure: names that no document has any more.
delete from lexical_scopes c
 where c.tenant_id = :tenant and c.store_id = :store
   and not exists (
     select from documents d
      where d.tenant_id = :tenant and d.store_id = :store and d.scope = c.scope
        and (c.session_id = '' or d.session_id = c.session_id)
        and (c.workspace_id = '' or d.workspace_id = c.workspace_id));

-- name: indexable_records(tenant, store, first, end)
select number, record_id as id, revision, ordinal, scope, workspace_id, session_id, canonical from records
 where tenant_id = :tenant and store_id = :store and number >= :first and number < :end order by number;

-- name: records_of_documents(tenant, store, documents)
select r.number, r.canonical
  from unnest(:documents::text[]) as d (id)
 cross join lateral (
   select number, canonical from records
    where tenant_id = :tenant and store_id = :store and document_id = d.id offset 0) r
 order by r.number;

-- name: segments_of_numbers(tenant, store, numbers)
-- Every segment that holds one of these numbers, in use or not, with the version of its build.
select g.*, i.version from lexical_segments g
  join lexical_indexes i on i.tenant_id = g.tenant_id and i.store_id = g.store_id and i.build = g.build
 where g.tenant_id = :tenant and g.store_id = :store
   and exists (select from unnest(:numbers::bigint[]) as n (number)
                where n.number >= g.first_number and n.number < g.end_number);

-- name: postings_of_terms(tenant, store, segment, terms)
select term, postings from lexical_postings
 where tenant_id = :tenant and store_id = :store and segment_id = :segment and term = any (:terms::text[]);

-- name: rewrite_segment(tenant, store, segment, lengths, scopes, ids, packed)!
update lexical_segments set lengths = :lengths, scopes = :scopes, ids = :ids, packed = :packed
 where tenant_id = :tenant and store_id = :store and segment_id = :segment;

-- name: rewrite_postings(tenant, store, segment, terms, blobs)!
update lexical_postings p set postings = n.blob
  from unnest(:terms::text[], :blobs::bytea[]) as n (term, blob)
 where p.tenant_id = :tenant and p.store_id = :store and p.segment_id = :segment and p.term = n.term;

-- name: delete_terms(tenant, store, segment, terms)!
delete from lexical_postings
 where tenant_id = :tenant and store_id = :store and segment_id = :segment and term = any (:terms::text[]);

-- name: erase_index(tenant, store)!
with gone_postings as (delete from lexical_postings where tenant_id = :tenant and store_id = :store),
gone_segments as (delete from lexical_segments where tenant_id = :tenant and store_id = :store),
gone_scopes as (delete from lexical_scopes where tenant_id = :tenant and store_id = :store)
delete from lexical_indexes where tenant_id = :tenant and store_id = :store;

-- name: request_index_job(tenant, store, job, payload, keep, attempts, again, delay)
-- A job of kind `index`, unless the store's last one has not ended (`again`: all the same). The relay sends it, `delay`
-- seconds from now (null: at once).
with asked as (
  update stores s set index_job = :job
   where s.tenant_id = :tenant and s.store_id = :store
     and (:again::boolean or not exists (
       select from jobs j where j.tenant_id = s.tenant_id and j.job_id = s.index_job and j.finished_at is null))
  returning s.tenant_id, s.store_id),
made as (
  insert into jobs (tenant_id, job_id, store_id, kind, queue, payload_bytes, keep_seconds, max_attempts, run_at, due_at)
  select a.tenant_id, :job, a.store_id, 'index', 'embed.bulk', octet_length(:payload::text), :keep::integer,
         :attempts::smallint, d.at, d.at
    from asked a cross join (select now() + make_interval(secs => :delay::float8) as at) d
  returning tenant_id, job_id)
insert into job_payloads (tenant_id, job_id, payload) select m.tenant_id, m.job_id, :payload::text from made m
returning job_id;

-- name: visible_records(tenant, store, revision, workspace, session, after, limit)
-- What a caller sees (contract.md, Scope), by number, a page at a time: for stores without an index.
select number, record_id as id, revision, ordinal, canonical from records
 where tenant_id = :tenant and store_id = :store and number > :after and revision <= :revision::bigint
   and (scope in ('global', 'daily')
        or (scope = 'project' and workspace_id = :workspace::text)
        or (scope = 'session' and session_id = :session::text
            and (workspace_id is null or workspace_id = :workspace::text)))
 order by number limit :limit;
