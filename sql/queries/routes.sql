-- The routes that find records by something else than their words or meaning (core/search/finding.py). Each takes the caller's
-- scope (contract.md, Scope) and the store's number at the search's revision: later records have numbers from there on.

-- name: insert_entities(tenant, store, entities, numbers)!
insert into record_entities (tenant_id, store_id, entity, number)
select :tenant, :store, e.entity, e.number from unnest(:entities::text[], :numbers::bigint[]) as e (entity, number)
on conflict (tenant_id, store_id, entity, number) do nothing;

-- name: known_entities(tenant, store, entities)
-- (A look-up each, whatever the planner knows or not: a join would be planned for the table as it was when it was small. So
-- also below.)
select e.entity
  from unnest(:entities::text[]) as e (entity)
 cross join lateral (
   select from record_entities k where k.tenant_id = :tenant and k.store_id = :store and k.entity = e.entity limit 1) k;

-- name: records_with_entities(tenant, store, entities, end, limit)
-- Of each entity the newest records, for a caller who sees all. (The list within a select, as in lexical_postings.)
select e.entity, array(
         select k.number from record_entities k
          where k.tenant_id = :tenant and k.store_id = :store and k.entity = e.entity and k.number < :end::bigint
          order by k.number desc limit :limit) as numbers
  from unnest((select :entities::text[])) as e (entity);

-- name: visible_records_with_entities(tenant, store, entities, end, workspace, session, limit)
select e.entity, array(
         select k.number
           from (select k.number from record_entities k
                  where k.tenant_id = :tenant and k.store_id = :store and k.entity = e.entity and k.number < :end::bigint
                  order by k.number desc offset 0) k
          cross join lateral (
            select from records r
             where r.tenant_id = :tenant and r.store_id = :store and r.number = k.number
               and (r.scope in ('global', 'daily')
                    or (r.scope = 'project' and r.workspace_id = :workspace::text)
                    or (r.scope = 'session' and r.session_id = :session::text
                        and (r.workspace_id is null or r.workspace_id = :workspace::text)))
             limit 1) r
          order by k.number desc limit :limit) as numbers
  from unnest((select :entities::text[])) as e (entity);

-- name: entities_of_records(tenant, store, numbers)
select number, entity from record_entities
 where tenant_id = :tenant and store_id = :store and number = any (:numbers::bigint[])
 order by number, entity;

-- name: records_before(tenant, store, moment, end, workspace, session, limit)
-- The latest whose event lies before the moment.
select number, event_at from records
 where tenant_id = :tenant and store_id = :store and event_at < :moment::timestamptz and number < :end
   and (scope in ('global', 'daily')
        or (scope = 'project' and workspace_id = :workspace::text)
        or (scope = 'session' and session_id = :session::text
            and (workspace_id is null or workspace_id = :workspace::text)))
 order by event_at desc, number desc limit :limit;

-- name: records_from(tenant, store, moment, end, workspace, session, limit)
-- The earliest whose event lies at the moment or later.
select number, event_at from records
 where tenant_id = :tenant and store_id = :store and event_at >= :moment::timestamptz and number < :end
   and (scope in ('global', 'daily')
        or (scope = 'project' and workspace_id = :workspace::text)
        or (scope = 'session' and session_id = :session::text
            and (workspace_id is null or workspace_id = :workspace::text)))
 order by event_at, number limit :limit;

-- name: erase_entities(tenant, store, documents)!
delete from record_entities e
 using records r
 where r.tenant_id = :tenant and r.store_id = :store
   and (:documents::text[] is null or r.document_id = any (:documents::text[]))
   and e.tenant_id = r.tenant_id and e.store_id = r.store_id and e.number = r.number;

-- name: records_by_number(tenant, store, numbers)
select number, record_id as id, document_id, sha256, canonical, position, ordinal from records
 where tenant_id = :tenant and store_id = :store and number = any (:numbers::bigint[]);
