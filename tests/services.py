"""Real servers for every suite: unsafe against a power cut, and therefore quick."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from workers.embedded.postgres import Postgres
from workers.embedded.valkey import Valkey


@contextmanager
def short_folder() -> Generator[Path]:
    """A temporary folder that `nobody` may enter, which pytest's own folders do not allow."""
    with tempfile.TemporaryDirectory(prefix="muniment-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


def start_postgres(tmp: Path) -> Postgres:
    server = Postgres(tmp / "postgres", durable=False)
    server.start()
    return server


def start_valkey(tmp: Path) -> Valkey:
    server = Valkey(tmp / "valkey", persistent=False)
    server.start()
    return server
