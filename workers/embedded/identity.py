"""As whom a server runs. Postgres refuses root, and no server needs it.

An ordinary user's servers run as that user. Root's run as `nobody`, or, where `nobody` cannot reach the programs or
the data (a 700 home folder), as root seen from a user namespace as a plain user. Neither changes the machine.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workers.embedded.errors import CannotStart

# Servers see nothing of the user's environment. PATH is for sh and unshare only.
SERVER_ENV = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "UTC"}
PROBE_S = 20
# unshare executes the program in its own process, so pid, parent and death signal stay as they are.
NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


@dataclass(frozen=True, slots=True)
class RunAs:
    """How to start a program: behind `prefix`, and as `uid` and `gid` where they are given."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    def own(self, path: Path) -> None:
        """Make `path` and all below it this identity's. Does nothing for an ordinary user or when it is so already.

        The walk happens only while the top belongs to somebody else, and the top changes hands last: whoever the
        identity is, it cannot put links in the way of the walk.
        """
        if os.geteuid() != 0:
            return
        uid, gid = self.uid or 0, self.gid or 0
        if path.lstat().st_uid == uid:
            return
        for folder, _, files in os.walk(path, topdown=False):
            for name in files:
                os.chown(Path(folder, name), uid, gid, follow_symlinks=False)
            os.chown(folder, uid, gid, follow_symlinks=False)
        os.chown(path, uid, gid, follow_symlinks=False)


def choose(program: Path, folder: Path) -> RunAs:
    """Who can run `program` on data in `folder`. Raises CannotStart when root can start it in neither way."""
    if os.geteuid() != 0:
        return RunAs()
    reasons: list[str] = []
    for name, candidate in (("as nobody", _nobody()), ("in a user namespace", RunAs(NAMESPACE))):
        reason = "there is no such user" if candidate is None else _obstacle(candidate, program, folder)
        if candidate is not None and not reason:
            return candidate
        reasons.append(f"{name}: {reason}")
    raise CannotStart(
        f"Running as root, and {program.name} must not be root; it can be started neither way ({'; '.join(reasons)}).\n"
        f"Do one of these: run as an ordinary user; or put both {program.parent} and {folder} where every user may "
        "enter (mode 755 folders, such as below /opt and /var/lib)."
    )


def _nobody() -> RunAs | None:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return None
    return RunAs(uid=entry.pw_uid, gid=entry.pw_gid)


def _obstacle(run_as: RunAs, program: Path, folder: Path) -> str:
    """Why this identity cannot enter `folder` and run `program`; empty when it can."""
    script = 'cd "$1" && exec "$2" --version'
    try:
        outcome = subprocess.run(
            [*run_as.prefix, "/bin/sh", "-c", script, "sh", str(folder), str(program)],
            cwd="/",
            env=SERVER_ENV,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
            user=run_as.uid,
            group=run_as.gid,
            extra_groups=None if run_as.uid is None else [],
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if outcome.returncode == 0 else outcome.stderr.strip() or f"exit status {outcome.returncode}"
