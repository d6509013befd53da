"""`vmafx top`: a live view of the fleet."""

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
from vmafx.cli.listing import REDRAW_PAUSE, REFRESH_INTERVAL
from vmafx.cli.options import HELP
from vmafx.cli.tables import as_json, as_yaml, cell
from vmafx.cli.terminal import can_redraw
from vmafx.cli.top_screen import render
from vmafx.fleet.overview import SORTINGS, FleetOverview, LiveOverview, Sorting, read_overview, sort_overview
from vmafx.kube import Client

ERRORS = cluster.ERRORS
PIPE_WIDTH = 100_000  # cells; nothing is cut in a pipe


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(top)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    sort: Annotated[
        Literal["name", "busy", "fps"], typer.Option(help="Sort order of nodes and running jobs.")
    ] = "name",
    output: cluster.OutputOption = "table",
    namespace: cluster.NamespaceOption = "",
    all_namespaces: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show a live view of the fleet: nodes, running jobs, the queue and finished jobs.

    Keys: q quits, s changes the sort order. If the output is not a terminal, or TERM is dumb, one snapshot is printed.
    """

    async def work(client: Client, where: str) -> None:
        if once or output != "table" or not can_redraw(sys.stdout):
            overview = sort_overview(await read_overview(client, where), sort)
            _print(overview, output, all_namespaces=all_namespaces)
            if not (overview.nodes or any(overview.phases.values())):
                await cluster.note_missing_namespace(client, where)
            return
        async with LiveOverview(client, where) as live:
            await LiveScreen(live, sort, all_namespaces=all_namespaces).run()

    cluster.run_with_client(work, kubeconfig, context, namespace, all_namespaces=all_namespaces)


class LiveScreen:
    """Redraws the overview until the user quits; handles the keys."""

    def __init__(self, live: LiveOverview, sorting: Sorting, *, all_namespaces: bool) -> None:
        self._live, self._sorting, self._all_namespaces = live, sorting, all_namespaces
        self._redraw_now, self._quit = asyncio.Event(), False

    async def run(self) -> None:
        console, deferred = Console(), DeferredStderr()
        logs.configure("error", "console", deferred)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._redraw_now.set)
        try:
            with Screen(console=console, screen=True, auto_refresh=False) as screen, terminal.key_presses(self._on_key):
                while not self._quit:
                    began = time.monotonic()
                    screen.update(self._render(console), refresh=True)
                    await self._wait(within=REFRESH_INTERVAL, pause=(time.monotonic() - began) * REDRAW_PAUSE)
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            deferred.flush_to_stderr()

    def _render(self, console: Console) -> RenderableType:
        overview, notes = sort_overview(self._live.current(), self._sorting), []
        if self._live.outage is not None:
            warning = f"the API server does not respond, retrying; the data below may be stale: {self._live.outage}"
            notes.append(Text(cell(warning), "bold white on red", no_wrap=True, overflow="ellipsis"))
        notes.append(Text(f"q quit   s sort: {self._sorting}", "dim", no_wrap=True, overflow="ellipsis"))
        return render(overview, console.height, console.width, notes, all_namespaces=self._all_namespaces)

    async def _wait(self, within: float, pause: float) -> None:
        """Wait for a change, but at least `pause` and at most `within` seconds more; a key press ends it at once."""
        changed = asyncio.create_task(self._changed(within, pause))
        redraw_now = asyncio.create_task(self._redraw_now.wait())
        try:
            await asyncio.wait((changed, redraw_now), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            redraw_now.cancel()
            await asyncio.gather(changed, redraw_now, return_exceptions=True)
        self._redraw_now.clear()

    async def _changed(self, within: float, pause: float) -> None:
        await asyncio.sleep(pause)
        await self._live.changed(within)

    def _on_key(self, key: str) -> None:
        if key in "qQ":
            self._quit = True
        elif key in "sS":
            self._sorting = SORTINGS[(SORTINGS.index(self._sorting) + 1) % len(SORTINGS)]
        self._redraw_now.set()


class DeferredStderr(io.StringIO):
    """Keeps the last log lines while the screen is shown, and writes them to standard error afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: deque[str] = deque(maxlen=40)

    def write(self, text: str) -> int:
        self._texts.append(text)
        return len(text)

    def flush_to_stderr(self) -> None:
        sys.stderr.write("".join(self._texts))


def _print(overview: FleetOverview, output: cluster.OutputFormat, *, all_namespaces: bool) -> None:
    match output:
        case "json":
            typer.echo(as_json(overview))
        case "yaml":
            typer.echo(as_yaml(overview))
        case _:
            console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH, color_system=None)
            with console.capture() as captured:
                console.print(render(overview, None, console.width, all_namespaces=all_namespaces))
            typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))
