-- Breakers and retry budgets of the fleet (core/models/circuits.py; memory-agent.md §10.1). All times are the database's.

-- One more availability failure in a row. An open period starts at the threshold, and anew when one ended and calls still fail;
-- failures of calls that were sent before it began do not lengthen it.
create or replace function breaker_failed(p_circuit text, p_threshold integer, p_open interval)
returns table (failures integer, open_left double precision) language sql as $$
  insert into breakers as b (circuit, failures, open_until)
  values (p_circuit, 1, case when p_threshold <= 1 then now() + p_open end)
  on conflict (circuit) do update
     set failures = b.failures + 1,
         open_until = case when b.failures + 1 < p_threshold then null
                           when b.open_until > now() then b.open_until
                           else now() + p_open end
  returning b.failures, extract(epoch from b.open_until - now())::double precision
$$;

-- True for the one that may try: at most once in p_trial, and only after an open period.
create or replace function breaker_trial(p_circuit text, p_holder text, p_trial interval)
returns boolean language sql as $$
  with tried as (
    update breakers set trial_until = now() + p_trial, holder = p_holder
     where circuit = p_circuit and open_until <= now() and (trial_until is null or trial_until <= now())
    returning circuit)
  select exists (select from tried)
$$;

-- A retry that starts now: 5 within any second always, beyond that a share of the calls of a minute. Exact for the fleet.
create or replace function take_retry(p_circuit text, p_share double precision, p_always integer)
returns boolean language plpgsql as $$
declare
  moment_now bigint;
  begun bigint;
  retried bigint;
  recent bigint;
begin
  perform pg_advisory_xact_lock(hashtextextended('retry ' || p_circuit, 0));
  moment_now := floor(extract(epoch from clock_timestamp()) * 10);
  select coalesce(sum(c.calls), 0), coalesce(sum(c.retries), 0),
         coalesce(sum(c.retries) filter (where c.moment >= moment_now - 10), 0)
    into begun, retried, recent
    from circuit_counts c where c.circuit = p_circuit and c.moment > moment_now - 600;
  if recent >= p_always and retried + 1 > p_share * begun then
    return false;
  end if;
  insert into circuit_counts as c (circuit, moment, retries) values (p_circuit, moment_now, 1)
  on conflict (circuit, moment) do update set retries = c.retries + 1;
  return true;
end
$$;

-- Calls that began within about the last second. What is older than two minutes counts no more and goes.
create or replace function add_calls(p_circuits text[], p_calls integer[])
returns void language sql as $$
  delete from circuit_counts
   where (circuit, moment) in (
     select o.circuit, o.moment from circuit_counts o
      where o.moment < floor(extract(epoch from now()) * 10) - 1200
      order by o.circuit, o.moment limit 1000 for update skip locked);
  insert into circuit_counts as c (circuit, moment, calls)
  select n.circuit, floor(extract(epoch from now()) * 10), n.calls
    from unnest(p_circuits, p_calls) as n (circuit, calls) order by n.circuit
  on conflict (circuit, moment) do update set calls = c.calls + excluded.calls
$$;
