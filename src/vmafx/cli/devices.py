"""`vmafx devices`: lists the backends, with the devices of this machine and the engines for them."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from vmafx.api.hardware import Backend
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, TableLayout, as_json
from vmafx.hardware.devices import HostHardware
from vmafx.scoring.engines.find import Engines

EXIT_CANNOT_SCORE = 3
COLUMNS = Columns(heads=("BACKEND", "DEVICE", "ENGINE"), names=("BACKEND",), texts=("DEVICE", "ENGINE"))
ERRORS: tuple[type[Exception], ...] = ()


class BackendRow(msgspec.Struct, frozen=True):
    """A backend on this machine. `device` is empty if none was found; without an `engine`, `problem` says why."""

    backend: Backend
    device: str
    count: int
    engine: str
    problem: str


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(devices)


def devices(
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the backends, with the devices of this machine and the engines that score on them.

    Exit codes: 0 there is an engine, 3 there is none.
    """
    rows = asyncio.run(_find())
    if json:
        typer.echo(as_json(rows))
    else:
        console = Console()
        cells = [(row.backend, row.device, row.engine or row.problem) for row in rows]
        for line in TableLayout(COLUMNS).lines(cells, width=console.width if console.is_terminal else None):
            typer.echo(line)
    if not any(row.engine for row in rows):
        raise typer.Exit(EXIT_CANNOT_SCORE)


async def _find() -> list[BackendRow]:
    found, engines = await asyncio.gather(HostHardware().devices(), Engines().probe())
    rows = []
    for probed in engines:
        device = found.get(probed.backend)
        engine = probed.facts.versions if probed.facts is not None else ""
        rows.append(
            BackendRow(
                probed.backend,
                device.text if device is not None else "",
                device.count if device is not None else 0,
                engine,
                probed.problem,
            )
        )
    return rows
