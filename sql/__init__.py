"""Every SQL text of Muniment: `migrations/`, `functions/` (hot job statements), `queries/` (named), `roles.sql`."""
