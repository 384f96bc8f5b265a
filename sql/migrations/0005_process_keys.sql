-- What a worker says of the keys of models it has: the doctor names those that are missing.
-- depends: 0004_jobs_listing

set local lock_timeout = '4s';
set local statement_timeout = '60s';

-- The variables of MUNIMENT_MODEL_KEY_ENVS that hold a key there: their names, never what they hold. Null: it does not say.
alter table processes add column key_envs text[];
