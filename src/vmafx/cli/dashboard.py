"""A frame of the fleet as `vmafx top` shows it: as much of it as there is room for."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vmafx.cli.queue import eta
from vmafx.cli.tables import cell, span
from vmafx.fleet.frame import BusyNode, Frame, RunningRow
from vmafx.fleet.queue import QueueRow
from vmafx.fleet.rows import JobRow

FULL, EMPTY = "█", "░"
BAR = 10  # cells
HEAD = 2  # lines of a part above its rows: its title, and the heads of its columns
PHASES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}
NUMBERS = {"FPS", "ATTEMPT", "ELAPSED", "PRIORITY", "POSITION", "ETA", "SCORE", "FRAMES", "TIME"}


class Part(NamedTuple):
    """A table of the screen, with a row for each of `rows`."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Text]]
    none: str


def picture(frame: Frame, room: int | None, notes: Sequence[Text] = (), *, everywhere: bool = False) -> RenderableType:
    """The screen in `room` lines; all of it where that is None."""
    parts = [_nodes(frame, everywhere), _running(frame, everywhere), _queue(frame, everywhere), _ended(frame)]
    head = [*_header(frame), *notes]
    left = None if room is None else max(room - len(head), 0)
    wants = [max(len(part.rows), 1) for part in parts]
    given = wants if left is None else share(left - len(parts) * (HEAD + 1), wants)
    drawn = [line for part, rows in zip(parts, given, strict=True) for line in _drawn(part, rows)]
    lines = [*head, *drawn]
    return Group(*(lines if room is None else _fitting(lines, room)))


def share(room: int, wants: Sequence[int]) -> list[int]:
    """So many rows for each: what it wants if that is little, and an equal part of the rest otherwise."""
    given = [0] * len(wants)
    hungry = [place for place, want in enumerate(wants) if want]
    while room > 0 and hungry:
        for place in hungry[:room]:
            given[place] += 1
        room -= len(hungry[:room])
        hungry = [place for place in hungry if given[place] < wants[place]]
    return given


def bar(part: float, width: int = BAR) -> str:
    """Never empty for something, never full for less than all."""
    whole = min(max(part, 0.0), 1.0)
    cells = min(max(round(whole * width), 1 if whole else 0), width if whole == 1 else width - 1)
    return FULL * cells + EMPTY * (width - cells)


def _fitting(lines: Sequence[RenderableType], room: int) -> list[RenderableType]:
    """Tables are several lines: whole ones, as long as they fit."""
    kept: list[RenderableType] = []
    for line in lines:
        room -= line.row_count + 1 if isinstance(line, Table) else 1
        if room < 0:
            break
        kept.append(line)
    return kept


def _header(frame: Frame) -> list[Text]:
    where = cell(f"namespace {frame.namespace}" if frame.namespace else "all namespaces")
    first = _line(("vmafx top", "bold"), f"  {cell(urlsplit(frame.server).netloc or frame.server)}  {where}  ")
    first.append(f"{frame.time.astimezone():%H:%M:%S}", "dim")
    jobs = _line(("Jobs  ", "bold"))
    for phase, style in PHASES.items():
        more = "" if frame.whole or phase in {"Pending", "Running"} else "+"
        jobs.append(f" {frame.phases[phase]:,}{more} ", style).append(f"{phase.lower()} ", "dim")
    pace = "-" if frame.jobsPerSecond is None else f"{frame.jobsPerSecond:.2f}"
    jobs.append("  ").append(pace, "bold").append(" jobs/s", "dim")
    slots = _line(("Slots ", "bold"), " ", (bar(frame.used / frame.slots if frame.slots else 0.0, 20), "cyan"))
    slots.append(f" {frame.used} of {frame.slots} used, {frame.free} free")
    slots.append("    ").append("-" if frame.fps is None else f"{frame.fps:,.1f}", "bold").append(" fps", "dim")
    return [first, jobs, slots]


def _nodes(frame: Frame, everywhere: bool) -> Part:
    columns = ("NODE", "VENDOR", "DEVICE", "HEALTH", "SLOTS", "FPS", "JOBS")
    rows = [
        _cells(
            _name(row, everywhere),
            row.vendor,
            row.device,
            _health(row),
            _plain(f"{bar(row.used / row.capacity)} {row.used}/{row.capacity}", "cyan"),
            _decimal(row.fps),
            ", ".join(_told(job) for job in row.jobs) or "-",
        )
        for row in frame.nodes
    ]
    return Part(f"Nodes ({len(rows):,})", columns, rows, "there are no nodes; see docs/nodes.md")


def _running(frame: Frame, everywhere: bool) -> Part:
    columns = ("JOB", "NODE", "ATTEMPT", "PROGRESS", "FPS", "ELAPSED")
    rows = [
        _cells(
            _name(row, everywhere),
            row.node,
            row.attempt,
            _plain("-" if row.done is None else f"{bar(row.done)} {row.done:4.0%}", "green"),
            _decimal(row.fps),
            span(row.elapsed),
        )
        for row in frame.running
    ]
    return Part(f"Running ({len(rows):,})", columns, rows, "nothing runs")


def _queue(frame: Frame, everywhere: bool) -> Part:
    columns = ("POSITION", "JOB", "PRIORITY", "ETA", "WAITS FOR")
    rows = [
        _cells(row.position, _name(row, everywhere), row.priority, eta(row, row.doneIn), _why(row))
        for row in frame.queue
    ]
    return Part(f"Queue ({len(rows):,})", columns, rows, "nobody waits")


def _ended(frame: Frame) -> Part:
    columns = ("JOB", "PHASE", "SCORE", "FRAMES", "NODE", "TIME", "MESSAGE")
    rows = [_over(row) for row in frame.ended]
    return Part("Ended", columns, rows, "none has ended yet")


def _over(row: JobRow) -> list[Text]:
    took = None if row.started is None or row.finished is None else (row.finished - row.started).total_seconds()
    message = f"{row.reason}: {row.message}" if row.reason and row.message else row.message
    score = _plain("-" if row.score is None else f"{row.score:.2f}", "bold")
    phase = _plain(row.phase, PHASES.get(row.phase, ""))
    return _cells(row.name, phase, score, row.frames, row.node, span(took), message)


def _drawn(part: Part, room: int) -> list[RenderableType]:
    title = _line("")
    lines: list[RenderableType] = [title, _line((part.title, "bold underline"))]
    if not part.rows:
        return [*lines, _line((part.none, "dim"))]
    shown = part.rows[:room]
    if len(shown) < len(part.rows):
        lines[1] = _line((part.title, "bold underline"), (f"  the first {len(shown)}", "dim"))
    return [*lines, _table(part.columns, shown)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
    for name in columns:
        number = name in NUMBERS
        table.add_column(name, no_wrap=True, overflow="ellipsis", justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


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
