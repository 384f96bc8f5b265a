"""The `muniment` command: what there is, and how its errors are told."""

import logging
import sys
from typing import Annotated

import typer

from api.cli import (
    importing,
    index,
    jobs,
    keys,
    memories,
    processes,
    queues,
    records,
    searching,
    stores,
    tenants,
    verifying,
)
from api.cli.demo import demo
from api.cli.doctor import doctor
from api.cli.up import up

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, keys among them
    help="A memory backend for AI agents. Settings are environment variables with the prefix MUNIMENT_; see the README.",
)

HERE = "On this machine"
CLIENT = "Clients (HTTP)"
PROCESSES = "Processes"
OPERATORS = "Operators (Postgres)"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("muniment"))
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    del version  # its callback has printed it


app.command(rich_help_panel=HERE)(up)
app.command(rich_help_panel=HERE)(demo)
app.command(rich_help_panel=CLIENT)(memories.write)
app.command(rich_help_panel=CLIENT)(memories.read)
app.command(rich_help_panel=CLIENT)(searching.search)
app.command(rich_help_panel=CLIENT)(verifying.export)
app.command(rich_help_panel=CLIENT)(verifying.verify)
app.command("import", rich_help_panel=CLIENT)(importing.import_archive)
app.add_typer(records.app, name="records", rich_help_panel=CLIENT)
app.add_typer(jobs.app, name="jobs", rich_help_panel=CLIENT)
app.add_typer(stores.app, name="stores", rich_help_panel=CLIENT)
app.command(rich_help_panel=PROCESSES)(processes.api)
app.command(rich_help_panel=PROCESSES)(processes.worker)
app.command(rich_help_panel=PROCESSES)(processes.relay)
app.command(rich_help_panel=PROCESSES)(processes.exporter)
app.command(rich_help_panel=OPERATORS)(processes.migrate)
app.command(rich_help_panel=OPERATORS)(doctor)
app.add_typer(tenants.app, name="tenants", rich_help_panel=OPERATORS)
app.add_typer(keys.app, name="keys", rich_help_panel=OPERATORS)
app.add_typer(queues.app, name="queues", rich_help_panel=OPERATORS)
app.add_typer(index.app, name="index", rich_help_panel=OPERATORS)


def main() -> None:
    """The console script. Exit status 1: it did not work, and why is on standard error; 2: wrong usage."""
    logging.getLogger("psycopg").addHandler(logging.NullHandler())  # a command says by itself what went wrong
    try:
        app()
    except Exception as error:
        from api.cli.output import print_problem
        from core.errors import MunimentError
        from workers.embedded.errors import CannotStart

        if isinstance(error, MunimentError):
            print_problem(error)
        elif isinstance(error, CannotStart):
            print(error, file=sys.stderr)
        else:
            raise
        sys.exit(1)


if __name__ == "__main__":
    main()
