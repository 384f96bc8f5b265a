"""The README's passages on models and money do what they say, command by command, in another terminal than that of `up`."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import ROOT, environment, invoke
from tests.fakes.fleet import until
from tests.services import short_folder
from workers.embedded.stack import Stack

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (apt-get install curl)")
UP = (".venv/bin/muniment up", "export ")
"""What `stack` does, where the keys are."""


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TYPESAFE_API_KEY", "canary-8d31")
        settings = {"model_key_envs": "TYPESAFE_API_KEY"}
        with Stack(folder / ".muniment", durable=False, rehearsal=True, settings=settings) as running:
            command = folder / ".venv" / "bin" / "muniment"
            command.parent.mkdir(parents=True)
            command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m api.cli.main "$@"\n')
            command.chmod(0o755)
            yield running


def commands(heading: str) -> list[str]:
    """The lines of the passage's blocks, without those that start the stack."""
    text = (ROOT / "README.md").read_text("utf-8")
    (passage,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^## |^### |\Z)", text, re.DOTALL | re.MULTILINE)
    lines = [
        line
        for block in re.findall(r"^```\n(.*?)^```", passage, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    return [line for line in lines if not line.startswith(UP)]


def run(stack: Stack, line: str) -> str:
    """As a person types it, where only `up`'s folder is known."""
    folder: Path = stack.data.path.parent
    first = commands("Ten lines of HTTP")[0].replace("http://127.0.0.1:8420", stack.url)
    loud = line.replace("curl ", "curl -sSf --noproxy '*' ")  # fails with what was wrong
    done = subprocess.run(
        ["bash", "-c", f"set -e; set -o pipefail; {first}\n{loud}"],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "canary" not in done.stdout + done.stderr
    return done.stdout


def test_models_then_money(stack: Stack) -> None:
    made = invoke("tenants", "create", "acme", env=environment(data_dir=str(stack.data.path)))  # as README does before
    acme = json.loads(made.stdout)["id"]
    told = {line: run(stack, line) for line in commands("Models")}
    assert len(told) == 9
    listed = next(text for line, text in told.items() if "models list" in line)
    assert {line.split()[0] for line in listed.splitlines()} >= {"judge", "writer", "rehearsal-judge"}
    assert acme in listed
    assert "every worker has the keys" in next(text for line, text in told.items() if "doctor" in line)
    until(lambda: "embedding" in run(stack, ".venv/bin/muniment usage"), 15)
    told = {line: run(stack, line) for line in commands("Money")}
    assert len(told) == 5
    shown = run(stack, ".venv/bin/muniment budget show --json")
    assert next(row["cap"] for row in json.loads(shown)["items"] if row["provider"] == "jev") == "25"
    assert any(re.search(r"embedding +embed +[1-9]", text) for text in told.values())
