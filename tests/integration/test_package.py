"""The wheel holds all that a running Muniment reads: licences, SQL, the sample archive."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LICENCES = ("LICENSE", "LICENSE.memory-agent", "LICENSE.v8")
UNREACHABLE = ("No matching distribution found for hatchling", "Could not find a version", "connection", "Connection")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built as pip does it for a user: from the project's folder, with its build backend in a place of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    outcome = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--disable-pip-version-check", "-w", folder, ROOT],
        capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    if outcome.returncode != 0 and any(sign in outcome.stderr for sign in UNREACHABLE):
        pytest.skip("the package registry, which has the build backend, cannot be reached")
    assert outcome.returncode == 0, outcome.stderr
    (file,) = folder.glob("muniment-*.whl")
    return zipfile.ZipFile(file)


def test_the_licences_are_inside_word_for_word(wheel: zipfile.ZipFile) -> None:
    for name in LICENCES:
        (entry,) = [entry for entry in wheel.namelist() if entry.endswith(f".dist-info/licenses/{name}")]
        assert wheel.read(entry) == (ROOT / name).read_bytes()


def test_every_file_of_the_packages_is_inside(wheel: zipfile.ZipFile) -> None:
    wanted = {
        str(file.relative_to(ROOT))
        for package in ("api", "core", "sql", "workers")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert {"sql/migrations/0001_spine.sql", "sql/roles.sql", "workers/embedded/sample/conversations.json"} <= wanted
    assert wanted <= set(wheel.namelist())


def test_nothing_else_is_inside(wheel: zipfile.ZipFile) -> None:
    tops = {entry.split("/")[0] for entry in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"api", "core", "sql", "workers"}
    assert not [entry for entry in wheel.namelist() if entry.endswith(".pyc")]


def test_the_metadata_names_licence_command_and_extras(wheel: zipfile.ZipFile) -> None:
    (name,) = [entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata.get_all("License-File") or []) == set(LICENCES)
    assert {"embedded", "dev"} <= set(metadata.get_all("Provides-Extra") or [])
    (scripts,) = [entry for entry in wheel.namelist() if entry.endswith("entry_points.txt")]
    assert "muniment = api.cli.main:main" in wheel.read(scripts).decode()
