"""Listings of rows, printed once or watched: redrawn on a terminal, appended line by line elsewhere."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import msgspec
import typer
from rich.console import Console
from rich.live import Live as Screen
from rich.text import Text

from vmafx.cli.cluster import OutputFormat
from vmafx.cli.tables import Columns, TableLayout, as_json, as_yaml, cell
from vmafx.cli.terminal import can_redraw, until_reader_leaves
from vmafx.fleet.watch import LiveCaches
from vmafx.kube import ObjectKey
from vmafx.kube.decoding import UnreadableObject
from vmafx.runtime.store import ObjectChange

REFRESH_INTERVAL = 1.0  # seconds between two looks on a terminal, where times go by
MIN_REDRAW_INTERVAL = 3.0  # times as long as a look took, so that looking takes a quarter of a core at most


class ListingRow(NamedTuple):
    """The same for scripts and for people. `steady`: what of it changes only when something happened."""

    key: ObjectKey
    document: Any
    cells: Sequence[object]
    steady: Any


class Listing(msgspec.Struct, frozen=True):
    """All rows; `whole` is what JSON and YAML say of them together, `foot` stands below the table."""

    rows: list[ListingRow]
    whole: Any
    foot: Sequence[str] = ()


class ListingSource(Protocol):
    """What a command shows: as things stand, and what to say of changes."""

    def sheet(self) -> Listing: ...

    def changed(self, changes: Sequence[ObjectChange[Any]]) -> Iterable[ListingRow]: ...


class ListingDiff:
    """For sheets in which one change may move many rows: each is compared with the one before."""

    def __init__(self, look: Callable[[], Listing], gone: Callable[[ListingRow], ListingRow]) -> None:
        self._look, self._gone = look, gone
        self._before: dict[ObjectKey, ListingRow] = {}

    def sheet(self) -> Listing:
        now = self._look()
        self._before = {row.key: row for row in now.rows}
        return now

    def changed(self, _changes: Sequence[ObjectChange[Any]]) -> list[ListingRow]:
        before, after = self._before, self.sheet().rows
        gone = [self._gone(row) for key, row in before.items() if key not in self._before]
        return gone + [row for row in after if row.key not in before or before[row.key].steady != row.steady]


class ListingPrinter:
    """Prints rows in one form. With `everywhere`, people are shown the namespace of each."""

    def __init__(self, columns: Columns, output: OutputFormat, *, everywhere: bool) -> None:
        self._output, self._everywhere = output, everywhere
        self._columns = columns.after("NAMESPACE") if everywhere else columns
        self._layout = TableLayout(self._columns)

    def once(self, sheet: Listing) -> None:
        match self._output:
            case "json":
                typer.echo(as_json(sheet.whole))
            case "yaml":
                typer.echo(as_yaml(sheet.whole))
            case _:
                width = Console().width if sys.stdout.isatty() else None
                lines = self._layout.lines(self._cells(sheet.rows), width=width) if sheet.rows else []
                typer.echo("\n".join([*lines, *sheet.foot]))

    async def watch(self, live: LiveCaches, shown: ListingSource) -> NoReturn:
        """For as long as nobody says stop, and somebody reads it."""
        if self._output == "table" and can_redraw(sys.stdout):
            await self._redraw(live, shown)
        await until_reader_leaves(self._go_on(live, shown))

    async def _go_on(self, live: LiveCaches, shown: ListingSource) -> NoReturn:
        self._tell(shown.sheet().rows, head=True)
        while True:
            changes = await live.changes()
            began = time.monotonic()
            self._tell(shown.changed(changes))
            await asyncio.sleep((time.monotonic() - began) * MIN_REDRAW_INTERVAL)

    def _tell(self, rows: Iterable[ListingRow], *, head: bool = False) -> None:
        """A line for each row; of YAML a document."""
        rows = list(rows)
        match self._output:
            case "json":
                lines = [as_json(row.document, indent=False) for row in rows]
            case "yaml":
                lines = [f"---\n{as_yaml(row.document)}" for row in rows]
            case _:
                lines = self._layout.lines(self._cells(rows), head=head)
        if lines:
            typer.echo("\n".join(lines))

    async def _redraw(self, live: LiveCaches, shown: ListingSource) -> NoReturn:
        console = Console()
        with Screen(console=console, auto_refresh=False) as screen:
            while True:
                began = time.monotonic()
                screen.update(self._picture(shown.sheet(), console), refresh=True)
                await asyncio.sleep((time.monotonic() - began) * MIN_REDRAW_INTERVAL)
                await live.changes(within=REFRESH_INTERVAL)

    def _picture(self, sheet: Listing, console: Console) -> Text:
        """As much of the sheet as there is room for."""
        room = max(console.height - len(sheet.foot) - 2, 1)
        shown = sheet.rows if len(sheet.rows) <= room else sheet.rows[: room - 1]
        lines = TableLayout(self._columns).lines(self._cells(shown), width=console.width) if sheet.rows else []
        if len(shown) < len(sheet.rows):
            lines.append(f"… and {len(sheet.rows) - len(shown)} more")
        text = Text("\n".join([*lines, *sheet.foot]), no_wrap=True, overflow="ellipsis")
        text.stylize("bold", 0, len(lines[0]) if lines else 0)
        return text

    def _cells(self, rows: Iterable[ListingRow]) -> Iterable[Sequence[object]]:
        return ((row.key.namespace, *row.cells) if self._everywhere else row.cells for row in rows)


def warn_unreadable(unreadable: Iterable[UnreadableObject]) -> None:
    """Objects that another version of vmafx may have written."""
    for one in unreadable:
        name = cell(str(ObjectKey(one.metadata.namespace, one.metadata.name)))
        typer.echo(f"note: {name} cannot be read and is left out: {cell(one.error)}", err=True)
