"""`demo`: everything once, in a temporary folder: a real archive in, three questions, their evidence."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from api.cli.interrupts import Interrupts
    from workers.embedded.stack import Stack

STORE = "journal"
ITEMS = 4
"""Records shown for each question."""
TAIL_LINES = 8
INTERRUPTED = 130
IMPORT_S = 60.0
READ_S = 30.0


def demo() -> None:
    """Start Muniment in a temporary folder, import a sample archive, ask three questions, show the evidence."""
    import tempfile

    from rich.console import Console

    from api.cli.interrupts import Interrupts
    from workers.embedded.stack import Stack

    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="muniment-demo-"))
    folder.chmod(0o711)  # the servers of root run as `nobody`, who must get through
    stack = Stack(folder, durable=False)
    with Interrupts() as interrupts:
        try:
            _show(stack, console, interrupts)
        except KeyboardInterrupt:
            interrupts.gentle = True
            print("Interrupted.", file=sys.stderr)
            status = INTERRUPTED
        except Exception as error:  # whatever it is: say so, stop all, keep the logs
            interrupts.gentle = True
            _explain(stack, error)
            status = 1
        else:
            status = 0
        finally:
            interrupts.gentle = True
            stack.stop()
    if status == 1:
        print(f"Nothing is left running. Data and logs are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(status)


def _show(stack: "Stack", console: "Console", interrupts: "Interrupts") -> None:
    import json
    from importlib.resources import as_file, files

    from api.cli import archives
    from api.cli.client import Client
    from api.cli.evidence import print_view
    from api.cli.importing import print_report, run
    from core.clock import monotonic
    from core.errors import Unavailable

    began = monotonic()
    console.print(f"Starting Postgres, Valkey, API, workers, relay and exporter in {stack.data.path} …", soft_wrap=True)
    stack.start()
    interrupts.check()
    console.print(
        f"{len(stack.processes)} processes answer after {monotonic() - began:.1f} s; the API is {stack.url}\n"
    )
    sample = files("workers.embedded") / "sample"
    questions = (sample / "questions.txt").read_text("utf-8").splitlines()
    with (
        as_file(sample / "conversations.json") as archive,
        Client(stack.url, stack.key, timeout=30, connect_timeout=5) as client,
    ):
        found = run(client, archives.create(client, STORE, archive), archive, IMPORT_S, console)
        print_report(found, console)
        if found["state"] != "succeeded":
            raise archives.ended_badly(found) or Unavailable(f"the import is not done after {IMPORT_S:.0f} s")
        titles = {entry["conversation_id"]: f"“{entry['title']}”" for entry in json.loads(archive.read_bytes())}
        for question in filter(None, questions):
            interrupts.check()
            console.print()
            console.rule(f"[bold]{question}", align="left")
            body = json.dumps({"question": question, "maxItems": ITEMS}).encode()
            done, view = client.run(f"/stores/{STORE}/reads", body, wait=READ_S)
            if not done:
                raise Unavailable(f"the question is not answered after {READ_S:.0f} s")
            print_view(client, STORE, view, console, titles)
    console.print(f"Done in {monotonic() - began:.1f} s. Every quote is from a stored record; its SHA-256 proves it.")
    console.print("`muniment up` keeps a memory of your own.")


def _explain(stack: "Stack", error: Exception) -> None:
    from api.cli.logtail import last_lines
    from api.cli.output import note, print_problem
    from core.errors import MunimentError
    from workers.embedded.errors import CannotStart

    note("The demo failed.")
    if isinstance(error, MunimentError):
        print_problem(error)
    else:
        note(str(error) if isinstance(error, CannotStart) else f"{type(error).__name__}: {error}")
    for process in stack.processes:
        if tail := last_lines(process.log, TAIL_LINES):
            note(f"--- {process.log}")
            for line in tail:
                note(line)
