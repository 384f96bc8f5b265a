"""A server's own folder: its data, its log and its password.

The folder itself stays its starter's, so that a server run as `nobody` can change only its data.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from workers.embedded.errors import CannotStart
from workers.embedded.identity import RunAs, choose


@dataclass(frozen=True, slots=True)
class ServerFolder:
    path: Path
    run_as: RunAs

    @classmethod
    def prepare(cls, path: Path, program: Path) -> "ServerFolder":
        """Make the folder where it is missing and decide who runs `program` in it. Raises CannotStart."""
        path = path.absolute()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            run_as = choose(program, path.parent)
            if run_as.uid is not None:
                path.chmod(0o711)  # ours, not a parent: let nobody through to the data
            folder = cls(path, run_as)
            folder._make_password()
        except OSError as error:
            raise CannotStart(f"The data folder {path} cannot be used: {error}") from error
        return folder

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def password_file(self) -> Path:
        return self.path / "password"

    @property
    def password(self) -> str:
        return self.password_file.read_text(encoding="ascii")

    def data(self, name: str) -> Path:
        """The sub-folder `name`, made when missing, belonging to the server's user."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        self.run_as.own(path)
        return path

    def _make_password(self) -> None:
        """Write a random password once; whole or not at all, readable by the server's user only."""
        if not self.password_file.exists():
            part = self.path / "password.part"
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(24))
                file.flush()
                os.fsync(descriptor)
            part.rename(self.password_file)
        self.run_as.own(self.password_file)
