"""The schema as pg_dump sees it after all migrations. `python -m tests.schema` writes sql/schema.sql anew."""

import re
import subprocess
from pathlib import Path

from core.store.migrate import bootstrap, migrate
from tests.services import short_folder, start_postgres
from workers.embedded import carriers

SNAPSHOT = Path(__file__).parents[1] / "sql" / "schema.sql"
HEADER = (
    "-- What the migrations and functions add up to, as pg_dump writes it. Made by `make schema`; compared in CI.\n\n"
)
_NOISE = re.compile(r"^(--.*|\\(un)?restrict .*|SET .*|SELECT pg_catalog\.set_config.*)\n", re.MULTILINE)


def dump(superuser_dsn: str) -> str:
    """Tables, indexes, functions, policies and grants of the schema `public`, yoyo's own tables left out."""
    program = carriers.find(carriers.POSTGRES).bin / "pg_dump"
    command = [
        program,
        "--schema-only",
        "--no-owner",
        "--schema=public",
        "--exclude-table=_yoyo*",
        "--exclude-table=yoyo*",
    ]
    done = subprocess.run([*command, superuser_dsn], capture_output=True, text=True, timeout=60, check=True)
    return HEADER + re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", done.stdout)).strip() + "\n"


def main() -> None:
    with short_folder() as folder:
        server = start_postgres(folder)
        try:
            bootstrap(server.superuser_dsn, {role: role for role in ("owner", "app", "relay", "exporter")}, "muniment")
            migrate(server.dsn("muniment_owner", "owner", "muniment"))
            SNAPSHOT.write_text(dump(server.superuser_dsn.rpartition("/")[0] + "/muniment"), "utf-8")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
