-- Vectors (core/search/vectors). Statements that return vectors are run in the binary protocol.

-- name: embedding_of(tenant, store)
select config -> 'embedding' as embedding from stores where tenant_id = :tenant and store_id = :store;

-- name: vector_state(tenant, store, space)
-- How far a store is filled, and how far it could be. What is numbered below `total` is there for the next statement to see.
select s.next_number as total, coalesce(f.filled, 0) as filled
  from stores s
  left join vector_sets f on f.tenant_id = s.tenant_id and f.store_id = s.store_id and f.space = :space
 where s.tenant_id = :tenant and s.store_id = :store;

-- name: records_to_embed(tenant, store, space, first, end, limit)
-- In order of numbers; without its text when that has a vector, whose length then comes instead. (A look-up each, here and
-- below: a join may be planned for the vectors as they were when they were few, and then reads them all for every page.)
select r.number, r.content, case when v.dimensions is null then r.canonical end as canonical, v.dimensions
  from (select number, content, canonical from records
         where tenant_id = :tenant and store_id = :store and number >= :first and number < :end
         order by number limit :limit) r
  left join lateral (
    select octet_length(vector) / 4 as dimensions from vectors
     where tenant_id = :tenant and content = r.content and space = :space limit 1) v on true
 order by r.number;

-- name: lock_contents(tenant, store, first, end, contents)
-- Which of these texts a record of the page still has; they stay until the transaction ends.
with alive as materialized (
  select r.content from records r
   where r.tenant_id = :tenant and r.store_id = :store and r.number >= :first and r.number < :end
     and r.content = any (:contents::bytea[])
     for key share)
select distinct content from alive;

-- name: insert_vectors(tenant, space, contents, vectors)!
insert into vectors (tenant_id, content, space, vector)
select :tenant, n.content, :space, n.vector from unnest(:contents::bytea[], :vectors::bytea[]) as n (content, vector)
on conflict (tenant_id, content, space) do nothing;

-- name: add_vector_set(tenant, store, space, model, dimensions)
-- The length of the set's vectors, which the first of them decides.
insert into vector_sets as s (tenant_id, store_id, space, model, dimensions)
values (:tenant, :store, :space, :model, :dimensions::integer)
on conflict (tenant_id, store_id, space) do update set dimensions = coalesce(s.dimensions, excluded.dimensions)
returning dimensions;

-- name: move_vector_set(tenant, store, space, first, end)!
update vector_sets set filled = :end
 where tenant_id = :tenant and store_id = :store and space = :space and filled = :first;

-- name: vector_set(tenant, store, space)
select filled, dimensions from vector_sets where tenant_id = :tenant and store_id = :store and space = :space;

-- name: vectors_between(tenant, store, space, first, end)
-- One row: as many rows as vectors would cost more than the vectors.
select coalesce(array_agg(r.number order by r.number), '{}') as numbers,
       string_agg(v.vector, ''::bytea order by r.number) as vectors
  from records r
 cross join lateral (
   select vector from vectors where tenant_id = :tenant and content = r.content and space = :space limit 1) v
 where r.tenant_id = :tenant and r.store_id = :store and r.number >= :first and r.number < :end;

-- name: vectors_of_numbers(tenant, store, space, numbers)
select r.number, v.vector
  from records r
 cross join lateral (
   select vector from vectors where tenant_id = :tenant and content = r.content and space = :space limit 1) v
 where r.tenant_id = :tenant and r.store_id = :store and r.number = any (:numbers::bigint[]);

-- name: another_embed_job(tenant, store, job)
-- Whether another job, which began before this one, is filling the store at this moment.
select exists (
  select from jobs mine
    join jobs j on j.tenant_id = mine.tenant_id and j.queue in ('embed.interactive', 'embed.bulk') and j.finished_at is null
   where mine.tenant_id = :tenant and mine.job_id = :job
     and j.sent_at is not null and j.state = 'running' and j.kind = 'embed' and j.store_id = :store and j.due_at > now()
     and (j.started_at, j.job_id) < (mine.started_at, mine.job_id)) as running;

-- name: request_embed_job(tenant, store, job, queue, keep, attempts)
-- A job of kind `embed`, unless the store's last one waits, in this lane or the quicker one. That job's row stays locked until
-- this transaction ends, so that it cannot be claimed before; one that is being claimed is passed over. The relay sends it.
with waiting as materialized (
  select from stores s join jobs j on j.tenant_id = s.tenant_id and j.job_id = s.embed_job
   where s.tenant_id = :tenant and s.store_id = :store and j.state in ('queued', 'deferred')
     and j.queue in (:queue::text, 'embed.interactive')
     for share of j skip locked),
asked as (
  update stores s set embed_job = :job
   where s.tenant_id = :tenant and s.store_id = :store and not exists (select from waiting)
  returning s.tenant_id, s.store_id),
made as (
  insert into jobs (tenant_id, job_id, store_id, kind, queue, payload_bytes, keep_seconds, max_attempts)
  select a.tenant_id, :job, a.store_id, 'embed', :queue::text, 2, :keep::integer, :attempts::smallint from asked a
  returning tenant_id, job_id)
insert into job_payloads (tenant_id, job_id, payload) select m.tenant_id, m.job_id, '{}' from made m
returning job_id;

-- name: lock_records(tenant, store, documents)
-- Null: all of the store's.
select count(*) as records from (
  select from records
   where tenant_id = :tenant and store_id = :store
     and (:documents::text[] is null or document_id = any (:documents::text[]))
     for update) locked;

-- name: erase_vectors(tenant, store, documents)!
-- Of texts that no other record of the tenant has.
delete from vectors v
 using (select distinct r.content from records r
         where r.tenant_id = :tenant and r.store_id = :store
           and (:documents::text[] is null or r.document_id = any (:documents::text[]))) gone
 where v.tenant_id = :tenant and v.content = gone.content
   and not exists (
     select from records o
      where o.content = gone.content and o.tenant_id = :tenant
        and (o.store_id <> :store or (:documents::text[] is not null and o.document_id <> all (:documents::text[]))));

-- name: erase_vector_sets(tenant, store)!
delete from vector_sets where tenant_id = :tenant and store_id = :store;
