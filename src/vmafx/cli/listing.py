"""Listings of rows, printed once or watched: redrawn on a terminal, one line per change elsewhere."""

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
from vmafx.cli.terminal import can_redraw, until_pipe_closes
from vmafx.fleet.watch import LiveCaches
from vmafx.kube import ObjectKey, key_of
from vmafx.kube.decoding import UnreadableObject
from vmafx.runtime.store import ObjectChange

REFRESH_INTERVAL = 1.0  # seconds between redraws on a terminal, since ages and estimates change with time
REDRAW_PAUSE = 3.0  # times as long as the last redraw took, so that redrawing uses at most a quarter of a core


class ListingRow(NamedTuple):
    """One object: `document` for JSON and YAML, `cells` for the table. It changed if `state` did, which has no ages."""

    key: ObjectKey
    document: Any
    cells: Sequence[object]
    state: Any


class Listing(msgspec.Struct, frozen=True):
    """All rows; `document` is the whole for JSON and YAML, `footer` stands below the table."""

    rows: list[ListingRow]
    document: Any
    footer: Sequence[str] = ()


class ListingSource(Protocol):
    """What a command shows: the current listing, and the rows to print for changes."""

    def listing(self) -> Listing: ...

    def changed(self, changes: Sequence[ObjectChange[Any]]) -> Iterable[ListingRow]: ...


class ListingDiff:
    """A source for listings in which one change can affect many rows: compares each listing with the one before."""

    def __init__(self, current: Callable[[], Listing], removed: Callable[[ListingRow], ListingRow]) -> None:
        self._current, self._removed = current, removed
        self._before: dict[ObjectKey, ListingRow] = {}

    def listing(self) -> Listing:
        listing = self._current()
        self._before = {row.key: row for row in listing.rows}
        return listing

    def changed(self, _changes: Sequence[ObjectChange[Any]]) -> list[ListingRow]:
        before, after = self._before, self.listing().rows
        removed = [self._removed(row) for key, row in before.items() if key not in self._before]
        return removed + [row for row in after if row.key not in before or before[row.key].state != row.state]


class ListingPrinter:
    """Prints listings in one output format. With `all_namespaces`, the table has a NAMESPACE column."""

    def __init__(self, columns: Columns, output: OutputFormat, *, all_namespaces: bool) -> None:
        self._output, self._all_namespaces = output, all_namespaces
        self._columns = columns.after("NAMESPACE") if all_namespaces else columns
        self._layout = TableLayout(self._columns)

    def once(self, listing: Listing) -> None:
        match self._output:
            case "json":
                typer.echo(as_json(listing.document))
            case "yaml":
                typer.echo(as_yaml(listing.document))
            case _:
                width = Console().width if sys.stdout.isatty() else None
                lines = self._layout.lines(self._cells(listing.rows), width=width) if listing.rows else []
                typer.echo("\n".join([*lines, *listing.footer]))

    async def watch(self, caches: LiveCaches, source: ListingSource) -> NoReturn:
        """Print changes until the user interrupts or the reader closes the pipe."""
        if self._output == "table" and can_redraw(sys.stdout):
            await self._redraw(caches, source)
        await until_pipe_closes(self._append(caches, source))

    async def _append(self, caches: LiveCaches, source: ListingSource) -> NoReturn:
        self._print_rows(source.listing().rows, head=True)
        while True:
            changes = await caches.changes()
            began = time.monotonic()
            self._print_rows(source.changed(changes))
            await asyncio.sleep((time.monotonic() - began) * REDRAW_PAUSE)

    def _print_rows(self, rows: Iterable[ListingRow], *, head: bool = False) -> None:
        """One line per row, or one document per row for YAML."""
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

    async def _redraw(self, caches: LiveCaches, source: ListingSource) -> NoReturn:
        console = Console()
        with Screen(console=console, auto_refresh=False) as screen:
            while True:
                began = time.monotonic()
                screen.update(self._render(source.listing(), console), refresh=True)
                await asyncio.sleep((time.monotonic() - began) * REDRAW_PAUSE)
                await caches.changes(within=REFRESH_INTERVAL)

    def _render(self, listing: Listing, console: Console) -> Text:
        """As many rows as fit on the screen, and the footer."""
        height = max(console.height - len(listing.footer) - 2, 1)
        shown = listing.rows if len(listing.rows) <= height else listing.rows[: height - 1]
        lines = TableLayout(self._columns).lines(self._cells(shown), width=console.width) if listing.rows else []
        if len(shown) < len(listing.rows):
            lines.append(f"… and {len(listing.rows) - len(shown)} more")
        text = Text("\n".join([*lines, *listing.footer]), no_wrap=True, overflow="ellipsis")
        text.stylize("bold", 0, len(lines[0]) if lines else 0)
        return text

    def _cells(self, rows: Iterable[ListingRow]) -> Iterable[Sequence[object]]:
        return ((row.key.namespace, *row.cells) if self._all_namespaces else row.cells for row in rows)


def warn_unreadable(unreadable: Iterable[UnreadableObject]) -> None:
    """Note each object that could not be decoded; another version of vmafx may have written it."""
    for item in unreadable:
        name = cell(str(key_of(item)))
        typer.echo(f"note: {name} is not shown, since it cannot be decoded: {cell(item.error)}", err=True)
