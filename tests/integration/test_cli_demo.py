"""`muniment demo`: the real command, from nothing to evidence, and nothing left behind."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli import COMMAND, all_gone, environment, eventually
from tests.services import short_folder

SECONDS = 90  # the bar is for an idle machine with two cores


def demo(folder: Path, **settings: str) -> "subprocess.CompletedProcess[str]":
    env = {**environment(**settings), "TMPDIR": str(folder)}
    return subprocess.run(
        [*COMMAND, "demo"], env=env, cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_the_demo_answers_three_questions_with_quotes_and_leaves_nothing() -> None:
    with short_folder() as folder:
        done = demo(folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(folder.iterdir()) == [], "the temporary folder was not removed"
    text = " ".join(done.stdout.split())
    for words in (
        "Import succeeded: 9 conversations, 68 messages",
        "Left out: 17 items",
        "7 May 2026 “Pegel after the pilot”",
        "We decided it this morning: the Pegel project changes its database",
        "appointment with Dr. Sommer was moved",
        "905 euros",
    ):
        assert words in text, words
    assert done.stdout.count("proof: ") == 12
    assert done.stdout.count("───") >= 3


@pytest.mark.chaos
def test_a_demo_that_fails_says_why_keeps_its_folder_and_leaves_nothing_running() -> None:
    with short_folder() as folder:
        done = subprocess.run(
            [COMMAND[0], "-P", "-c", BROKEN], env={**environment(), "TMPDIR": str(folder)}, cwd="/",
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 1, done.stdout + done.stderr
        assert "The demo failed." in done.stderr
        assert "MUNIMENT_FAULTS" in done.stderr, "the log of what failed is not shown"
        kept = next(path for path in folder.iterdir() if path.name.startswith("muniment-demo-"))
        assert f"Nothing is left running. Data and logs are kept in {kept}" in done.stderr
        assert all_gone(kept)


@pytest.mark.chaos
def test_ctrl_c_ends_the_demo_and_removes_its_folder() -> None:
    with short_folder() as folder:
        process = subprocess.Popen(
            [*COMMAND, "demo"], env={**environment(), "TMPDIR": str(folder)}, cwd="/", stdout=subprocess.DEVNULL
        )
        with process:
            assert eventually(lambda: any(folder.glob("*/logs/relay.log")))
            process.send_signal(signal.SIGINT)
            assert process.wait(40) == 130
        assert list(folder.iterdir()) == []


BROKEN = """
import sys
from workers.embedded import stack
plan = stack.Stack._plan
def broken(self):
    made = plan(self)
    made["model"].environment["MUNIMENT_FAULTS"] = "nowhere=kill"
    return made
stack.Stack._plan = broken
from api.cli.main import main
sys.argv = ["muniment", "demo"]
main()
"""
