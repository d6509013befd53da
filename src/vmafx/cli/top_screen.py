"""The screen of `vmafx top`: panels of nodes, running, waiting and finished jobs, fitted to the terminal."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vmafx.api.job import FINISHED
from vmafx.cli.queue import eta
from vmafx.cli.tables import Columns, cell, cell_width, duration, shorten
from vmafx.fleet.overview import FleetOverview, NodeJobsRow, RunningRow
from vmafx.fleet.queue import QueueRow
from vmafx.fleet.rows import JobRow

FULL, EMPTY = "█", "░"
BAR_WIDTH = 10  # cells
GAP = 2  # cells between two columns
PANEL_HEAD = 3  # lines of a panel above its rows: an empty one, the title, the heads of the columns
PHASE_STYLES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}
RIGHT_ALIGNED = {"FPS", "ATTEMPT", "ELAPSED", "PRIORITY", "POSITION", "ETA", "SCORE", "FRAMES", "TIME"}
NODES = Columns(
    heads=("NODE", "VENDOR", "DEVICE", "HEALTH", "SLOTS", "FPS", "JOBS"),
    names=("NODE",),
    texts=("DEVICE", "HEALTH", "JOBS"),
    optional=("DEVICE", "VENDOR", "FPS", "JOBS"),
)
RUNNING = Columns(
    heads=("JOB", "NODE", "ATTEMPT", "PROGRESS", "FPS", "ELAPSED"), names=("JOB",), optional=("ATTEMPT", "FPS", "NODE")
)
QUEUE = Columns(
    heads=("POSITION", "JOB", "PRIORITY", "ETA", "REASON"),
    names=("JOB",),
    texts=("REASON",),
    optional=("PRIORITY", "POSITION"),
)
FINISHED_JOBS = Columns(
    heads=("JOB", "PHASE", "SCORE", "FRAMES", "NODE", "TIME", "MESSAGE"),
    names=("JOB",),
    texts=("MESSAGE",),
    optional=("FRAMES", "NODE", "TIME"),
)


class Panel(NamedTuple):
    """A table of the screen, or the text `empty` if it has no rows. `rows` are the `order` ones of `total`."""

    title: str
    columns: Columns
    rows: Sequence[Sequence[Text]]
    empty: str
    total: int
    order: str = "first"


def render(
    overview: FleetOverview, height: int | None, width: int, notes: Sequence[Text] = (), *, all_namespaces: bool = False
) -> RenderableType:
    """The screen in `height` lines of `width` cells; all lines if `height` is None."""
    panels = [
        _nodes_panel(overview, all_namespaces),
        _running_panel(overview, all_namespaces),
        _queue_panel(overview, all_namespaces),
        _finished_panel(overview),
    ]
    header = [*_header(overview), *notes]
    row_counts = [len(panel.rows) for panel in panels]
    if height is not None:
        panels = _panels_that_fit(panels, height - len(header))
        free = height - len(header) - PANEL_HEAD * len(panels)
        row_counts = divide_rows(free, [len(panel.rows) for panel in panels])
    lines = [line for panel, rows in zip(panels, row_counts, strict=True) for line in _render_panel(panel, rows, width)]
    return Group(*(header if height is None else header[:height]), *lines)


def _panels_that_fit(panels: Sequence[Panel], height: int) -> list[Panel]:
    """The panels of which at least one row can be shown; panels without rows are dropped first."""
    kept = set()
    for index in sorted(range(len(panels)), key=lambda index: not panels[index].rows):
        needed = PANEL_HEAD + bool(panels[index].rows)
        if needed <= height:
            kept.add(index)
            height -= needed
    return [panel for index, panel in enumerate(panels) if index in kept]


def divide_rows(free: int, wanted: Sequence[int]) -> list[int]:
    """Divide `free` rows evenly; none gets more than it wants, and what it does not need goes to the others."""
    given = [0] * len(wanted)
    unfilled = [index for index, count in enumerate(wanted) if count]
    while free > 0 and unfilled:
        for index in unfilled[:free]:
            given[index] += 1
        free -= len(unfilled[:free])
        unfilled = [index for index in unfilled if given[index] < wanted[index]]
    return given


def bar(fraction: float, width: int = BAR_WIDTH) -> str:
    """A bar that is empty only for 0 and full only for 1."""
    clamped = min(max(fraction, 0.0), 1.0)
    cells = min(max(round(clamped * width), 1 if clamped else 0), width if clamped == 1 else width - 1)
    return FULL * cells + EMPTY * (width - cells)


def _header(overview: FleetOverview) -> list[Text]:
    where = cell(f"namespace {overview.namespace}" if overview.namespace else "all namespaces")
    first = _line(("vmafx top", "bold"), f"  {cell(urlsplit(overview.server).netloc or overview.server)}  {where}  ")
    first.append(f"{overview.time.astimezone():%H:%M:%S}", "dim")
    jobs = _line(("Jobs  ", "bold"))
    for phase, style in PHASE_STYLES.items():
        more = "" if overview.whole or phase in {"Pending", "Running"} else "+"
        jobs.append(f" {overview.phases[phase]:,}{more} ", style).append(f"{phase.lower()} ", "dim")
    rate = "-" if overview.jobsPerSecond is None else f"{overview.jobsPerSecond:.2f}"
    jobs.append("  ").append(rate, "bold").append(" jobs/s", "dim")
    slots = _line(("Slots ", "bold"), " ", (bar(overview.used / overview.slots if overview.slots else 0.0, 20), "cyan"))
    slots.append(f" {overview.used} of {overview.slots} used, {overview.free} free")
    slots.append("    ").append("-" if overview.fps is None else f"{overview.fps:,.1f}", "bold").append(" fps", "dim")
    return [first, jobs, slots]


def _nodes_panel(overview: FleetOverview, all_namespaces: bool) -> Panel:
    rows = [
        _cells(
            _name(row, all_namespaces),
            row.vendor,
            row.device,
            _health(row),
            _plain(f"{bar(row.used / row.capacity)} {row.used}/{row.capacity}", "cyan"),
            _decimal(row.fps),
            ", ".join(job.name if job.done is None else f"{job.name} {job.done:.0%}" for job in row.jobs) or "-",
        )
        for row in overview.nodes
    ]
    return Panel(f"Nodes ({len(rows):,})", NODES, rows, "no nodes; see docs/nodes.md", len(rows))


def _running_panel(overview: FleetOverview, all_namespaces: bool) -> Panel:
    rows = [
        _cells(
            _name(row, all_namespaces),
            row.node,
            row.attempt,
            _plain("-" if row.done is None else f"{bar(row.done)} {row.done:4.0%}", "green"),
            _decimal(row.fps),
            duration(row.elapsed),
        )
        for row in overview.running
    ]
    return Panel(f"Running ({len(rows):,})", RUNNING, rows, "no running jobs", len(rows))


def _queue_panel(overview: FleetOverview, all_namespaces: bool) -> Panel:
    rows = [
        _cells(
            row.position, _name(row, all_namespaces), row.priority, eta(row, row.doneIn), f"{row.reason}: {row.message}"
        )
        for row in overview.queue
    ]
    return Panel(f"Queue ({len(rows):,})", QUEUE, rows, "no waiting jobs", len(rows))


def _finished_panel(overview: FleetOverview) -> Panel:
    rows = [_finished_cells(row) for row in overview.ended]
    total = sum(overview.phases[phase] for phase in FINISHED)
    title = f"Finished ({total:,}{'' if overview.whole else '+'})"
    return Panel(title, FINISHED_JOBS, rows, "no finished jobs", total, order="latest")


def _finished_cells(row: JobRow) -> list[Text]:
    took = None if row.started is None or row.finished is None else (row.finished - row.started).total_seconds()
    message = f"{row.reason}: {row.message}" if row.reason and row.message else row.message
    score = _plain("-" if row.score is None else f"{row.score:.2f}", "bold")
    phase = _plain(row.phase, PHASE_STYLES.get(row.phase, ""))
    return _cells(row.name, phase, score, row.frames, row.node, duration(took), message)


def _render_panel(panel: Panel, rows: int, width: int) -> list[RenderableType]:
    title = _line((panel.title, "bold underline"))
    if not panel.rows:
        return [_line(""), title, _line((panel.empty, "dim"))]
    if rows < panel.total:
        title.append(f"  the {panel.order} {rows}" if rows > 1 else f"  the {panel.order} one", "dim")
    return [_line(""), title, _table(panel.columns, panel.rows[:rows], width)]


def _table(columns: Columns, rows: Sequence[Sequence[Text]], width: int) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    needed = [
        max(cell_width(head), *(cell_width(row[index].plain) for row in rows))
        for index, head in enumerate(columns.heads)
    ]
    fitted = columns.fit(needed, GAP, width)
    for head, cells in zip(columns.heads, fitted, strict=True):
        if cells:
            table.add_column(head, width=cells, no_wrap=True, justify="right" if head in RIGHT_ALIGNED else "left")
    for row in rows:
        cells_of_row = zip(columns.heads, row, fitted, strict=True)
        table.add_row(
            *(
                Text(shorten(text.plain, cells, name=head in columns.names), text.style)
                for head, text, cells in cells_of_row
                if cells
            )
        )
    return table


def _health(row: NodeJobsRow) -> Text:
    if row.reason is None:
        return _plain("healthy", "green")
    return _plain(f"{row.reason}: {row.message}" if row.message else row.reason, "red" if not row.healthy else "yellow")


def _name(row: QueueRow | RunningRow | NodeJobsRow, all_namespaces: bool) -> str:
    return f"{row.namespace}/{row.name}" if all_namespaces else row.name


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _cells(*values: object) -> list[Text]:
    return [value if isinstance(value, Text) else _plain(value) for value in values]


def _plain(value: object, style: str = "") -> Text:
    """The value as printable text, never as markup."""
    return Text(cell(value), style, no_wrap=True, overflow="ellipsis")


def _line(*pieces: str | tuple[str, str]) -> Text:
    return Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")
