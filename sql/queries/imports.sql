-- name: insert_import(tenant, import_id, store, filename, size, format)!
insert into imports (tenant_id, import_id, store_id, filename, size, format)
values (:tenant, :import_id, :store, :filename, :size, :format);

-- name: announced_bytes(tenant)
-- What the tenant has stored, and what its open uploads would add.
select (select coalesce(sum(s.stored_bytes), 0) from stores s where s.tenant_id = :tenant)::bigint as stored,
       (select coalesce(sum(i.size), 0) from imports i
         where i.tenant_id = :tenant and i.state in ('uploading', 'ready', 'running', 'paused')
           and i.updated_at > now() - interval '24 hours')::bigint as announced;

-- name: lock_import(tenant, import_id)
select state, job_id, size, received from imports where tenant_id = :tenant and import_id = :import_id for update;

-- name: get_import(tenant, import_id)
-- `shown`: how the import stands. While it runs its job decides, so that a job that died or was cancelled by itself shows,
-- and one that a person retries runs again. A job that is missing is just being accepted, or never was.
select i.import_id, i.store_id, i.job_id, i.state, i.filename, i.size, i.received, i.format, i.next_item, i.place,
       i.report, i.created_at, i.updated_at, s.name as store, j.state as job_state, j.error as job_error, j.progress_done,
       j.progress_total, j.progress_unit,
       case when i.state <> 'running' then i.state
            when j.job_id is null and i.updated_at > now() - interval '60 s' then 'running'
            when j.job_id is null or j.state in ('failed', 'dead') then 'failed'
            when j.state = 'cancelled' then 'cancelled'
            else 'running' end as shown,
       coalesce(i.finished_at, case when i.state = 'running' then j.finished_at end) as finished_at
  from imports i
  left join stores s on s.tenant_id = i.tenant_id and s.store_id = i.store_id
  left join jobs j on j.tenant_id = i.tenant_id and j.job_id = i.job_id
 where i.tenant_id = :tenant and i.import_id = :import_id;

-- name: list_imports(tenant, names, before, limit)
-- Newest first; `names` null: of every store. Without reports.
select i.import_id, i.store_id, i.job_id, i.state, i.filename, i.size, i.received, i.format, i.next_item,
       null::jsonb as report, i.created_at, i.updated_at, s.name as store, j.state as job_state, j.error as job_error,
       j.progress_done, j.progress_total, j.progress_unit,
       case when i.state <> 'running' then i.state
            when j.job_id is null and i.updated_at > now() - interval '60 s' then 'running'
            when j.job_id is null or j.state in ('failed', 'dead') then 'failed'
            when j.state = 'cancelled' then 'cancelled'
            else 'running' end as shown,
       coalesce(i.finished_at, case when i.state = 'running' then j.finished_at end) as finished_at
  from imports i
  join stores s on s.tenant_id = i.tenant_id and s.store_id = i.store_id
  left join jobs j on j.tenant_id = i.tenant_id and j.job_id = i.job_id
 where i.tenant_id = :tenant and (:names::text[] is null or s.name = any (:names::text[]))
   and (:before::uuid is null or i.import_id < :before::uuid)
 order by i.import_id desc limit :limit;

-- name: extend_upload(tenant, import_id, chunk, length, bytes)!
-- Fills up the last row. No row: the bytes before these are no longer kept.
update uploads set bytes = bytes || :bytes::bytea
 where tenant_id = :tenant and import_id = :import_id and chunk = :chunk and octet_length(bytes) = :length;

-- name: insert_upload(tenant, import_id, chunks, bytes)!
insert into uploads (tenant_id, import_id, chunk, bytes)
select :tenant, :import_id, u.chunk, u.bytes from unnest(:chunks::integer[], :bytes::bytea[]) as u (chunk, bytes);

-- name: received_upload(tenant, import_id, received)!
update imports
   set received = :received, state = case when :received = size then 'ready' else state end, updated_at = now()
 where tenant_id = :tenant and import_id = :import_id;

-- name: upload_rows(tenant, import_id)
select count(*) as rows from uploads where tenant_id = :tenant and import_id = :import_id;

-- name: upload_chunk(tenant, import_id, chunk)
select bytes from uploads where tenant_id = :tenant and import_id = :import_id and chunk = :chunk;

-- name: set_import_state(tenant, import_id, state, job)!
update imports
   set state = :state, job_id = :job::uuid, updated_at = now(),
       finished_at = case when :state in ('succeeded', 'failed', 'cancelled') then now() end
 where tenant_id = :tenant and import_id = :import_id;

-- name: unlink_import(tenant, import_id, state, job, failed)!
-- Takes `set_import_state` back when its job was not accepted.
update imports i set state = :state, job_id = :job::uuid, updated_at = now()
 where i.tenant_id = :tenant and i.import_id = :import_id and i.state = 'running' and i.job_id = :failed
   and not exists (select from jobs j where j.tenant_id = i.tenant_id and j.job_id = i.job_id);

-- name: advance_import(tenant, import_id, job, next_item, then_item, place, format, report)!
-- The run's place and its counts. No row: the import was paused, or is another job's by now.
update imports
   set next_item = :then_item, place = :place::jsonb, format = :format, report = :report::jsonb, updated_at = now()
 where tenant_id = :tenant and import_id = :import_id and job_id = :job and state = 'running' and next_item = :next_item;

-- name: imported_ids(tenant, import_id)
select digests from import_ids where tenant_id = :tenant and import_id = :import_id order by first_item;

-- name: insert_imported_ids(tenant, import_id, first, digests)!
insert into import_ids (tenant_id, import_id, first_item, digests) values (:tenant, :import_id, :first, :digests);

-- name: end_import(tenant, import_id, job, was, state, report)!
update imports
   set state = :state, report = :report::jsonb, updated_at = now(),
       finished_at = case when :state in ('succeeded', 'failed', 'cancelled') then now() end
 where tenant_id = :tenant and import_id = :import_id and job_id = :job and state = :was;

-- name: import_children(tenant, jobs)
-- Children by id with what became of their items: null for each that was written, else its problem.
select j.job_id, j.parent_id, j.state, j.error, j.finished_at is not null as finished,
       (select json_agg(item.value -> 'error' order by item.ordinality)
          from json_array_elements(r.result::json -> 'items') with ordinality as item) as errors
  from jobs j left join job_results r on r.tenant_id = j.tenant_id and r.job_id = j.job_id
 where j.tenant_id = :tenant and j.job_id = any (:jobs::uuid[]);
