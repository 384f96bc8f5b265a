-- Accepting is the one thing that must not be lost. Rows of several tenants may come in one call (group commit), so the
-- tenant is set before each row; every row gets its own outcome and none fails its neighbours.
--   outcome  accepted | replayed (same Idempotency-Key, same body) | conflict (same key, another body)
--            | unknown-store | document-exists
--   send     the caller owes this job a wake-up: its tenant is below its in-flight limit. A write needs one only when the
--            store has no unfinished write: else one is on its way, or the holder of the store looks again when it is done
create or replace function accept_jobs(
  p_tenants uuid[], p_jobs uuid[], p_stores text[], p_kinds text[], p_queues text[], p_payloads text[],
  p_document_ids text[], p_deadline_seconds integer[], p_keep_seconds integer[], p_max_attempts smallint[],
  p_waiters text[], p_traces text[], p_routes text[], p_keys text[], p_body_hashes bytea[], p_answers smallint[],
  p_inflight integer[])
returns table (ord integer, outcome text, job_id uuid, answered smallint, send boolean, created_at timestamptz)
language plpgsql as $$
declare
  v_store uuid;
  v_known record;
  v_bytes integer;
  v_send boolean;
  v_deadline timestamptz;
begin
  for i in 1 .. cardinality(p_jobs) loop
    perform set_config('muniment.tenant', p_tenants[i]::text, true);
    ord := i - 1; job_id := p_jobs[i]; answered := null; send := false; created_at := now();

    v_store := null;
    if p_stores[i] is not null then
      select s.store_id into v_store from stores s where s.tenant_id = p_tenants[i] and s.name = p_stores[i];
      if v_store is null then
        outcome := 'unknown-store'; return next; continue;
      end if;
    end if;

    if p_keys[i] is not null then
      insert into idempotency_keys as k (tenant_id, route, key, body_sha256, job_id, answered)
      values (p_tenants[i], p_routes[i], p_keys[i], p_body_hashes[i], p_jobs[i], p_answers[i])
      on conflict (tenant_id, route, key) do nothing;
      if not found then
        select k.job_id, k.answered, k.body_sha256 into v_known
          from idempotency_keys k
         where k.tenant_id = p_tenants[i] and k.route = p_routes[i] and k.key = p_keys[i];
        outcome := case when v_known.body_sha256 = p_body_hashes[i] then 'replayed' else 'conflict' end;
        job_id := v_known.job_id; answered := v_known.answered;
        return next; continue;
      end if;
    end if;

    if p_document_ids[i] is not null and (
         exists (select from documents d where d.tenant_id = p_tenants[i] and d.store_id = v_store
                    and d.document_id = p_document_ids[i])
         or exists (select from records r where r.tenant_id = p_tenants[i] and r.store_id = v_store
                    and r.record_id = p_document_ids[i])
         or exists (select from erasures e where e.tenant_id = p_tenants[i] and e.store_id = v_store
                    and e.record_id = p_document_ids[i])) then
      if p_keys[i] is not null then
        delete from idempotency_keys k
         where k.tenant_id = p_tenants[i] and k.route = p_routes[i] and k.key = p_keys[i];
      end if;
      outcome := 'document-exists'; return next; continue;
    end if;

    v_bytes := octet_length(p_payloads[i]);
    v_deadline := now() + make_interval(secs => p_deadline_seconds[i]);
    if p_queues[i] like 'write.%' then
      v_send := not exists (
        select from jobs j where j.tenant_id = p_tenants[i] and j.store_id = v_store and j.finished_at is null
           and j.queue in ('write.interactive', 'write.bulk'));
    else
      v_send := (select count(*) from (
        select from jobs j where j.tenant_id = p_tenants[i] and j.queue = p_queues[i] and j.finished_at is null
           and j.sent_at is not null limit p_inflight[i]) busy) < p_inflight[i];
    end if;
    insert into jobs (tenant_id, job_id, store_id, kind, queue, max_attempts, payload_bytes, keep_seconds, waiter, trace,
                      deadline_at, sent_at, due_at)
    values (p_tenants[i], p_jobs[i], v_store, p_kinds[i], p_queues[i], p_max_attempts[i], v_bytes, p_keep_seconds[i],
            p_waiters[i], p_traces[i], v_deadline,
            case when v_send then now() end,
            case when v_send then least(now() + interval '30 s', v_deadline) else v_deadline end);
    insert into job_payloads (tenant_id, job_id, payload) values (p_tenants[i], p_jobs[i], p_payloads[i]);
    outcome := 'accepted'; send := v_send;
    return next;
  end loop;
end
$$;

-- A push to Redis failed: the relay owes the wake-ups. A job that was claimed all the same and is parked by now keeps its
-- clock: without it nothing would ever look at it again.
create or replace function unsend_jobs(p_tenants uuid[], p_jobs uuid[])
returns void language plpgsql as $$
begin
  for i in 1 .. cardinality(p_jobs) loop
    perform set_config('muniment.tenant', p_tenants[i]::text, true);
    update jobs j set sent_at = null, due_at = j.deadline_at
     where j.tenant_id = p_tenants[i] and j.job_id = p_jobs[i] and j.state = 'queued' and j.run_at is null;
  end loop;
end
$$;
