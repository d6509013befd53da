"""The screen of `vmafx top`: panels of nodes, running, waiting and ended jobs, fitted to the terminal."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vmafx.api.job import FINISHED
from vmafx.cli.queue import eta
from vmafx.cli.tables import Columns, cell, cell_width, duration, shorten
from vmafx.fleet.overview import BusyNode, FleetOverview, RunningRow
from vmafx.fleet.queue import QueueRow
from vmafx.fleet.rows import JobRow

FULL, EMPTY = "█", "░"
BAR = 10  # cells
GAP = 2  # cells between two columns
HEAD = 3  # lines of a part above its rows: an empty one, its title, and the heads of its columns
PHASES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}
NUMBERS = {"FPS", "ATTEMPT", "ELAPSED", "PRIORITY", "POSITION", "ETA", "SCORE", "FRAMES", "TIME"}
NODES = Columns(
    heads=("NODE", "VENDOR", "DEVICE", "HEALTH", "SLOTS", "FPS", "JOBS"),
    names=("NODE",),
    texts=("DEVICE", "HEALTH", "JOBS"),
    spare=("DEVICE", "VENDOR", "FPS", "JOBS"),
)
RUNNING = Columns(
    heads=("JOB", "NODE", "ATTEMPT", "PROGRESS", "FPS", "ELAPSED"), names=("JOB",), spare=("ATTEMPT", "FPS", "NODE")
)
QUEUE = Columns(
    heads=("POSITION", "JOB", "PRIORITY", "ETA", "REASON"),
    names=("JOB",),
    texts=("REASON",),
    spare=("PRIORITY", "POSITION"),
)
ENDED = Columns(
    heads=("JOB", "PHASE", "SCORE", "FRAMES", "NODE", "TIME", "MESSAGE"),
    names=("JOB",),
    texts=("MESSAGE",),
    spare=("FRAMES", "NODE", "TIME"),
)


class Panel(NamedTuple):
    """A table of the screen, with a row for each of `rows`, which are the `order` ones of `total`."""

    title: str
    columns: Columns
    rows: Sequence[Sequence[Text]]
    none: str
    total: int
    order: str = "first"


def render(
    frame: FleetOverview, room: int | None, width: int, notes: Sequence[Text] = (), *, everywhere: bool = False
) -> RenderableType:
    """The screen in `room` lines of `width` cells; all lines where `room` is None."""
    parts = [_nodes(frame, everywhere), _running(frame, everywhere), _queue(frame, everywhere), _ended(frame)]
    head = [*_header(frame), *notes]
    given = [len(part.rows) for part in parts]
    if room is not None:
        parts = _with_room(parts, room - len(head))
        given = divide_rows(room - len(head) - HEAD * len(parts), [len(part.rows) for part in parts])
    drawn = [line for part, rows in zip(parts, given, strict=True) for line in _drawn(part, rows, width)]
    return Group(*(head if room is None else head[:room]), *drawn)


def _with_room(parts: Sequence[Panel], room: int) -> list[Panel]:
    """Those of which a row can be shown; where there is little room, parts with nothing to show go first."""
    kept = set()
    for place in sorted(range(len(parts)), key=lambda place: not parts[place].rows):
        needs = HEAD + bool(parts[place].rows)
        if needs <= room:
            kept.add(place)
            room -= needs
    return [part for place, part in enumerate(parts) if place in kept]


def divide_rows(room: int, wants: Sequence[int]) -> list[int]:
    """So many rows for each: what it wants if that is little, and an equal part of the rest otherwise."""
    given = [0] * len(wants)
    hungry = [place for place, want in enumerate(wants) if want]
    while room > 0 and hungry:
        for place in hungry[:room]:
            given[place] += 1
        room -= len(hungry[:room])
        hungry = [place for place in hungry if given[place] < wants[place]]
    return given


def slot_bar(part: float, width: int = BAR) -> str:
    """Never empty for something, never full for less than all."""
    whole = min(max(part, 0.0), 1.0)
    cells = min(max(round(whole * width), 1 if whole else 0), width if whole == 1 else width - 1)
    return FULL * cells + EMPTY * (width - cells)


def _header(frame: FleetOverview) -> list[Text]:
    where = cell(f"namespace {frame.namespace}" if frame.namespace else "all namespaces")
    first = _line(("vmafx top", "bold"), f"  {cell(urlsplit(frame.server).netloc or frame.server)}  {where}  ")
    first.append(f"{frame.time.astimezone():%H:%M:%S}", "dim")
    jobs = _line(("Jobs  ", "bold"))
    for phase, style in PHASES.items():
        more = "" if frame.whole or phase in {"Pending", "Running"} else "+"
        jobs.append(f" {frame.phases[phase]:,}{more} ", style).append(f"{phase.lower()} ", "dim")
    pace = "-" if frame.jobsPerSecond is None else f"{frame.jobsPerSecond:.2f}"
    jobs.append("  ").append(pace, "bold").append(" jobs/s", "dim")
    slots = _line(("Slots ", "bold"), " ", (slot_bar(frame.used / frame.slots if frame.slots else 0.0, 20), "cyan"))
    slots.append(f" {frame.used} of {frame.slots} used, {frame.free} free")
    slots.append("    ").append("-" if frame.fps is None else f"{frame.fps:,.1f}", "bold").append(" fps", "dim")
    return [first, jobs, slots]


def _nodes(frame: FleetOverview, everywhere: bool) -> Panel:
    rows = [
        _cells(
            _name(row, everywhere),
            row.vendor,
            row.device,
            _health(row),
            _plain(f"{slot_bar(row.used / row.capacity)} {row.used}/{row.capacity}", "cyan"),
            _decimal(row.fps),
            ", ".join(_told(job) for job in row.jobs) or "-",
        )
        for row in frame.nodes
    ]
    return Panel(f"Nodes ({len(rows):,})", NODES, rows, "no nodes; see docs/nodes.md", len(rows))


def _running(frame: FleetOverview, everywhere: bool) -> Panel:
    rows = [
        _cells(
            _name(row, everywhere),
            row.node,
            row.attempt,
            _plain("-" if row.done is None else f"{slot_bar(row.done)} {row.done:4.0%}", "green"),
            _decimal(row.fps),
            duration(row.elapsed),
        )
        for row in frame.running
    ]
    return Panel(f"Running ({len(rows):,})", RUNNING, rows, "no running jobs", len(rows))


def _queue(frame: FleetOverview, everywhere: bool) -> Panel:
    rows = [
        _cells(row.position, _name(row, everywhere), row.priority, eta(row, row.doneIn), _why(row))
        for row in frame.queue
    ]
    return Panel(f"Queue ({len(rows):,})", QUEUE, rows, "no waiting jobs", len(rows))


def _ended(frame: FleetOverview) -> Panel:
    rows = [_over(row) for row in frame.ended]
    total = sum(frame.phases[phase] for phase in FINISHED)
    title = f"Ended ({total:,}{'' if frame.whole else '+'})"
    return Panel(title, ENDED, rows, "no ended jobs", total, order="latest")


def _over(row: JobRow) -> list[Text]:
    took = None if row.started is None or row.finished is None else (row.finished - row.started).total_seconds()
    message = f"{row.reason}: {row.message}" if row.reason and row.message else row.message
    score = _plain("-" if row.score is None else f"{row.score:.2f}", "bold")
    phase = _plain(row.phase, PHASES.get(row.phase, ""))
    return _cells(row.name, phase, score, row.frames, row.node, duration(took), message)


def _drawn(part: Panel, rows: int, width: int) -> list[RenderableType]:
    title = _line((part.title, "bold underline"))
    if not part.rows:
        return [_line(""), title, _line((part.none, "dim"))]
    if rows < part.total:
        title.append(f"  the {part.order} {rows}" if rows > 1 else f"  the {part.order} one", "dim")
    return [_line(""), title, _table(part.columns, part.rows[:rows], width)]


def _table(columns: Columns, rows: Sequence[Sequence[Text]], width: int) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    needed = [
        max(cell_width(head), *(cell_width(row[place].plain) for row in rows))
        for place, head in enumerate(columns.heads)
    ]
    fitted = columns.fit(needed, GAP, width)
    for head, cells in zip(columns.heads, fitted, strict=True):
        if cells:
            table.add_column(head, width=cells, no_wrap=True, justify="right" if head in NUMBERS else "left")
    for row in rows:
        shown = zip(columns.heads, row, fitted, strict=True)
        table.add_row(*(_cut(text, cells, name=head in columns.names) for head, text, cells in shown if cells))
    return table


def _cut(text: Text, width: int, *, name: bool) -> Text:
    return Text(shorten(text.plain, width, name=name), text.style)


def _health(row: BusyNode) -> Text:
    if row.reason is None:
        return _plain("healthy", "green")
    return _plain(f"{row.reason}: {row.message}" if row.message else row.reason, "red" if not row.healthy else "yellow")


def _why(row: QueueRow) -> str:
    return f"{row.reason}: {row.message}"


def _told(job: RunningRow) -> str:
    return job.name if job.done is None else f"{job.name} {job.done:.0%}"


def _name(row: QueueRow | RunningRow | BusyNode, everywhere: bool) -> str:
    return f"{row.namespace}/{row.name}" if everywhere else row.name


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _cells(*values: object) -> list[Text]:
    return [value if isinstance(value, Text) else _plain(value) for value in values]


def _plain(value: object, style: str = "") -> Text:
    """Made printable; never markup."""
    return Text(cell(value), style, no_wrap=True, overflow="ellipsis")


def _line(*pieces: str | tuple[str, str]) -> Text:
    return Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")
