"""Who may do what, where, and how much: tenants, keys, stores with their configuration, quotas."""
