-- A worker's process is known to be dead: whoever started it has seen it end. Its claims need not wait for their leases. They
-- are only made due: the sweep then does to them what it does to any lost lease, with the same count of crashes. The token
-- fences them in any case, so nothing can run twice even if the process were alive. Returns how many claims were made due.
--
-- A last statement of the process may still be at work in its server process: its rows are waited for, and what it ended
-- is left alone. In the order of everything that locks several jobs and waits (end_jobs_of_store).
create or replace function reap_process(p_process uuid) returns integer language plpgsql set lock_timeout = '2s' as $$
declare
  v_owner text;  -- as the keeper names itself (workers/keeper.py)
  v_claims integer;
begin
  delete from processes p where p.process_id = p_process
  returning p.host || ':' || p.pid || ':' || right(replace(p.process_id::text, '-', ''), 8) into v_owner;
  if v_owner is null then return 0; end if;
  with held as materialized (
    select j.tenant_id, j.job_id from jobs j
     where j.finished_at is null and j.due_at > now() and j.state = 'running' and j.lease_owner = v_owner
     order by j.parent_id is null, j.job_id for no key update)
  update jobs j set due_at = now() from held h where j.tenant_id = h.tenant_id and j.job_id = h.job_id;
  get diagnostics v_claims = row_count;
  return v_claims;
end
$$;
