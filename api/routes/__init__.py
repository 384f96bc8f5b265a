"""One module a group of routes; each exports `router`, which `api/app.py` puts under /v1 (health: at the root)."""
