-- What test jobs do: each run of a job's effects adds one. A job that ran exactly once has times = 1.
create table effects (
  tenant_id uuid not null,
  job_id uuid not null,
  times integer not null,
  primary key (tenant_id, job_id)
);
grant select, insert, update on effects to muniment_app, muniment_relay;
