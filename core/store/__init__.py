"""Postgres: the pool, the tenant transaction, and one thin module a query file. Nothing else imports psycopg."""
