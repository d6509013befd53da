"""`vmafx devices`: lists the backends, with the devices of this machine and the engines for them."""

import asyncio
from typing import Annotated

import typer
from rich.console import Console

from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, TableLayout, as_json
from vmafx.hardware.backends import find_backends
from vmafx.scoring.errors import ScoringError

EXIT_CANNOT_SCORE = 3
COLUMNS = Columns(heads=("BACKEND", "DEVICE", "ENGINE"), names=("BACKEND",), texts=("DEVICE", "ENGINE"))
ERRORS: tuple[type[Exception], ...] = (ScoringError,)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(devices)


def devices(
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the backends, with the devices of this machine and the engines that score on them.

    Exit codes: 0 there is an engine, 3 there is none.
    """
    rows = asyncio.run(find_backends())
    if json:
        typer.echo(as_json(rows))
    else:
        console = Console()
        cells = [(row.backend, row.device, row.engine or row.problem) for row in rows]
        for line in TableLayout(COLUMNS).lines(cells, width=console.width if console.is_terminal else None):
            typer.echo(line)
    if not any(row.engine for row in rows):
        raise typer.Exit(EXIT_CANNOT_SCORE)
