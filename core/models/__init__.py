"""Models: what turns text into vectors. Everything that calls out over HTTP is here."""
