"""`vmafx top`: the fleet at a glance, for as long as somebody looks."""

import asyncio
import io
import signal
import sys
import time
from collections import deque
from typing import Annotated, Literal

import typer
from rich.console import Console, RenderableType
from rich.live import Live as Screen
from rich.text import Text

from vmafx import logs
from vmafx.cli import cluster, terminal
from vmafx.cli.listing import MIN_REDRAW_INTERVAL, REFRESH_INTERVAL
from vmafx.cli.options import HELP
from vmafx.cli.tables import as_json, as_yaml, cell
from vmafx.cli.terminal import can_redraw
from vmafx.cli.top_screen import render
from vmafx.fleet.overview import SORTINGS, FleetOverview, LiveOverview, Sorting, read_overview, sorted_by
from vmafx.kube import Client

ERRORS = cluster.ERRORS
PIPE_WIDTH = 100_000  # more than there is to say: where there is no terminal, nothing is cut


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(top)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    sort: Annotated[
        Literal["name", "busy", "fps"], typer.Option(help="Sort order of nodes and running jobs; key s changes it.")
    ] = "name",
    output: cluster.OutputOption = "table",
    namespace: cluster.NamespaceOption = "",
    everywhere: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show a live view of the fleet: nodes and their slots, running jobs and their progress, the queue, ended jobs.

    Keys: q quits, s changes the sort order. If the output is not a terminal, or a dumb one, it is printed once.
    """

    async def work(client: Client, where: str) -> None:
        if once or output != "table" or not can_redraw(sys.stdout):
            found = sorted_by(await read_overview(client, where), sort)
            _print(found, output, everywhere=everywhere)
            if not (found.nodes or any(found.phases.values())):
                await cluster.note_missing(client, where)
            return
        async with LiveOverview(client, where) as glance:
            await TopCommand(glance, sort, everywhere=everywhere).run()

    cluster.run_with_client(work, kubeconfig, context, namespace, everywhere=everywhere)


class TopCommand:
    """The screen, and the keys that change it."""

    def __init__(self, glance: LiveOverview, sorting: Sorting, *, everywhere: bool) -> None:
        self._glance, self._sorting, self._everywhere = glance, sorting, everywhere
        self._pressed, self._over = asyncio.Event(), False

    async def run(self) -> None:
        console, said = Console(), DeferredStderr()
        logs.configure("error", "console", said)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._pressed.set)
        try:
            with Screen(console=console, screen=True, auto_refresh=False) as screen, terminal.key_presses(self._hear):
                while not self._over:
                    began = time.monotonic()
                    screen.update(self._picture(console), refresh=True)
                    await self._something(
                        within=REFRESH_INTERVAL, rest=(time.monotonic() - began) * MIN_REDRAW_INTERVAL
                    )
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            said.repeat()

    def _picture(self, console: Console) -> RenderableType:
        frame, notes = sorted_by(self._glance.frame(), self._sorting), []
        if self._glance.away is not None:
            told = f"the API server does not answer, retrying; the data below may be out of date: {self._glance.away}"
            notes.append(Text(cell(told), "bold white on red", no_wrap=True, overflow="ellipsis"))
        notes.append(Text(f"q quit   s sort: {self._sorting}", "dim", no_wrap=True, overflow="ellipsis"))
        return render(frame, console.height, console.width, notes, everywhere=self._everywhere)

    async def _something(self, within: float, rest: float) -> None:
        """Until there is something new to show, but no sooner than after `rest`; a key is heard at once."""
        changed = asyncio.create_task(self._changed(within, rest))
        pressed = asyncio.create_task(self._pressed.wait())
        try:
            await asyncio.wait((changed, pressed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            pressed.cancel()
            await asyncio.gather(changed, pressed, return_exceptions=True)
        self._pressed.clear()

    async def _changed(self, within: float, rest: float) -> None:
        await asyncio.sleep(rest)
        await self._glance.changed(within)

    def _hear(self, key: str) -> None:
        if key in "qQ":
            self._over = True
        elif key in "sS":
            self._sorting = SORTINGS[(SORTINGS.index(self._sorting) + 1) % len(SORTINGS)]
        self._pressed.set()


class DeferredStderr(io.StringIO):
    """Keeps what would spoil the screen, to be said once it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[str] = deque(maxlen=40)

    def write(self, text: str) -> int:
        self._kept.append(text)
        return len(text)

    def repeat(self) -> None:
        sys.stderr.write("".join(self._kept))


def _print(found: FleetOverview, output: cluster.OutputFormat, *, everywhere: bool) -> None:
    match output:
        case "json":
            typer.echo(as_json(found))
        case "yaml":
            typer.echo(as_yaml(found))
        case _:
            console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH, color_system=None)
            with console.capture() as shown:
                console.print(render(found, None, console.width, everywhere=everywhere))
            typer.echo("\n".join(line.rstrip() for line in shown.get().splitlines()))
