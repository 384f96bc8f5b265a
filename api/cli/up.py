"""`up`: all of Muniment on this machine, in the foreground."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from api.cli.interrupts import Interrupts
    from workers.embedded.stack import Stack

LOOK_S = 0.1
COLOURS = ("cyan", "green", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_blue", "white")


def up(
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keeps everything; else MUNIMENT_DATA_DIR, else ./.muniment.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The API's port; left out: 8420, or any free one.", min=1, max=65_535)
    ] = None,
    models: Annotated[
        Literal["rehearsal"] | None,
        typer.Option(help="`rehearsal`: rules that speak as models do, to see everything without a key."),
    ] = None,
) -> None:
    """Run Muniment here: Postgres, Valkey, API, workers, relay, exporter. Ctrl-C stops it; the data stays."""
    from rich.console import Console

    from api.cli.interrupts import Interrupts
    from core.settings import load
    from workers.embedded.stack import Stack

    settings = load()
    stack = Stack(
        data_dir or settings.data_dir, port=port, rehearsal=models == "rehearsal", settings=settings.of_models()
    )
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Interrupts() as interrupts:
        try:
            console.print(f"Starting Muniment in {stack.data.path} …")
            stack.start()
            interrupts.check()
            interrupts.gentle = True
            _show(stack, port)
            _stream(stack, console, interrupts)
        except KeyboardInterrupt:
            pass
        finally:
            interrupts.gentle = True
            stack.stop()
    console.print(f"Stopped. The data stays in {stack.data.path}.")


def _show(stack: "Stack", port: int | None) -> None:
    from api.cli.output import print_table
    from workers.embedded.rehearsal import MODELS
    from workers.embedded.stack import API_PORT

    processes = stack.processes
    print_table(("process", "pid", "address", "log"), [(p.name, p.pid, p.address, p.log) for p in processes])
    print()
    print(f"API            {stack.url}")
    if port is None and not stack.url.endswith(f":{API_PORT}"):
        print(f"               (port {API_PORT} is taken; commands that use this data folder find the address)")
    print(f"Key            {stack.data.key_file} (tenant `default`, all scopes)")
    print(f"Operator key   {stack.data.operator_key_file}")
    if stack.rehearsal_url:
        print(f"Models         {', '.join(MODELS)}")
        print("               (REHEARSAL: rules, no models. What they answer shows how things work, not how well)")
    print("Ctrl-C stops everything. Logs follow.", flush=True)


def _stream(stack: "Stack", console: "Console", interrupts: "Interrupts") -> None:
    """Prints the logs and tends the processes until somebody asks to stop."""
    from threading import Event

    from rich.text import Text

    from api.cli.logtail import LogTail

    logs = {process.name: process.log for process in stack.processes}
    width = max(len(name) for name in logs)
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(logs)}
    tail = LogTail(logs)
    pause = Event()
    while not interrupts.asked:
        for name, line in tail.lines():
            console.print(Text(f"{name:<{width}} │ ", style=colours[name]).append(line, style="default"))
        for news in stack.tend():
            console.print(Text(f"{'muniment':<{width}} │ {news}", style="bold yellow"))
        pause.wait(LOOK_S)
