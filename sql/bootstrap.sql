-- Run in the new database by its administrator: what the owner may not do itself on every server.
create extension if not exists vector;
alter schema public owner to muniment_owner;
grant usage on schema public to muniment_app, muniment_relay, muniment_exporter;
revoke create on schema public from public;
