"""`vmafx queue`: the jobs that wait, their positions, the reasons, and the estimated starts."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

import typer

from vmafx.cli import cluster
from vmafx.cli.columns import Columns
from vmafx.cli.help import HELP
from vmafx.cli.showing import Differences, Printer, Row, Sheet, complain_of
from vmafx.cli.tables import between, cell, span
from vmafx.fleet.live import Live, LiveQueue, jobs_in, nodes_in
from vmafx.fleet.queue import Queue, QueueRow, Summary, left, read_queue
from vmafx.fleet.reading import UNFINISHED, Reader
from vmafx.kube import Client
from vmafx.times import utc_now

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("POSITION", "NAME", "PRIORITY", "WAITED", "STARTS", "ETA", "REASON"),
    texts=("REASON",),
    spare=("PRIORITY", "STARTS", "WAITED", "POSITION"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(queue)


def queue(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show only these jobs.")] = None,
    output: cluster.Output = "table",
    watch: cluster.Watch = False,
    namespace: cluster.Namespace = "",
    everywhere: cluster.Everywhere = False,
    kubeconfig: cluster.Kubeconfig = "",
    context: cluster.Context = "",
) -> None:
    """Show the jobs that wait, by position, and why they wait.

    POSITION counts the jobs of a namespace that a node can take, by priority and then by age; a job that is suspended,
    or that no node can take at present, has none. STARTS is the estimated time until a job starts, ETA until it is
    done: by how long other jobs took here, so unknown until one has finished.
    """
    wanted = frozenset(names or ())

    async def work(client: Client, where: str) -> None:
        printer, reader = Printer(COLUMNS, output, everywhere=everywhere), Reader(client, where)
        if watch:
            jobs, nodes = jobs_in(client, where, UNFINISHED), nodes_in(client, where)
            async with Live(client, jobs, nodes) as live:
                if not jobs.store.values():
                    await cluster.note_missing(client, where)
                current = await LiveQueue.read(reader, jobs, nodes)
                await printer.watch(live, _watched(current, wanted))
        found = await read_queue(reader, utc_now())
        complain_of(reader.unreadable)
        printer.once(_sheet(found, wanted))
        if not found.jobs:
            await cluster.note_missing(client, where)

    cluster.run(work, kubeconfig, context, namespace, everywhere=everywhere)


def _watched(current: LiveQueue, names: Collection[str]) -> Differences:
    def gone(row: Row) -> Row:
        return _row(left(row.document, current.job(row.key)), utc_now())

    return Differences(lambda: _sheet(current.at(utc_now()), names), gone)


def _sheet(found: Queue, names: Collection[str]) -> Sheet:
    now = utc_now()
    rows = [row for row in found.jobs if not names or row.name in names]
    absent = sorted(set(names) - {row.name for row in rows})
    foot = [*(cell(f"{name} is not waiting; see: vmafx jobs {name}") for name in absent), _summary(found.summary)]
    if any(eta(row, row.doneIn) == "unknown" for row in rows):
        foot.append("ETAs are unknown until a similar job has finished here")
    return Sheet([_row(row, now) for row in rows], Queue(rows, found.summary), foot)


def _row(row: QueueRow, now: datetime) -> Row:
    cells = (
        row.position,
        row.name,
        row.priority,
        span(between(row.created, now)),
        eta(row, row.startsIn),
        eta(row, row.doneIn),
        f"{row.reason}: {row.message}",
    )
    return Row(row.key, row, cells, row.without_times())


def eta(row: QueueRow, seconds: float | None) -> str:
    if seconds is None:
        return "unknown" if row.runs_in_time() else "-"
    return "now" if seconds < 1 else f"~{span(seconds)}"


def _summary(told: Summary) -> str:
    held = f" ({told.held} held back)" if told.held else ""
    slots = f"{told.free} of {told.slots} slots free" if told.slots else "no node takes jobs"
    vendors = ", ".join(f"{vendor} {one.free} of {one.slots}" for vendor, one in told.vendors.items())
    return f"{told.waiting} waiting{held}, {told.running} running; {slots}{f' ({vendors})' if vendors else ''}"
