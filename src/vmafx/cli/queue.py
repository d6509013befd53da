"""`vmafx queue`: the jobs that wait, their positions, the reasons, and the estimated starts."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

import typer

from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingDiff, ListingPrinter, ListingRow, warn_unreadable
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, cell, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.queue import JobQueue, QueueRow, QueueSummary, read_queue, row_after_wait
from vmafx.fleet.reader import UNFINISHED_PHASES, FleetReader
from vmafx.fleet.watch import LiveCaches, LiveQueue, jobs_informer, nodes_informer
from vmafx.kube import Client

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
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    everywhere: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show the jobs that wait, by position, and why they wait.

    POSITION counts the jobs of a namespace that a node can take, by priority and then by age; a job that is suspended,
    or that no node can take at present, has none. STARTS is the estimated time until a job starts, ETA until it is
    done: by how long other jobs took here, so unknown until one has finished.
    """
    wanted = frozenset(names or ())

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, everywhere=everywhere), FleetReader(client, where)
        if watch:
            jobs, nodes = jobs_informer(client, where, UNFINISHED_PHASES), nodes_informer(client, where)
            async with LiveCaches(client, jobs, nodes) as live:
                if not jobs.store.values():
                    await cluster.note_missing(client, where)
                current = await LiveQueue.read(reader, jobs, nodes)
                await printer.watch(live, _watched(current, wanted))
        found = await read_queue(reader, utc_now())
        warn_unreadable(reader.unreadable)
        printer.once(_sheet(found, wanted))
        if not found.jobs:
            await cluster.note_missing(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, everywhere=everywhere)


def _watched(current: LiveQueue, names: Collection[str]) -> ListingDiff:
    def gone(row: ListingRow) -> ListingRow:
        return _row(row_after_wait(row.document, current.job(row.key)), utc_now())

    return ListingDiff(lambda: _sheet(current.at(utc_now()), names), gone)


def _sheet(found: JobQueue, names: Collection[str]) -> Listing:
    now = utc_now()
    rows = [row for row in found.jobs if not names or row.name in names]
    absent = sorted(set(names) - {row.name for row in rows})
    foot = [*(cell(f"{name} is not waiting; see: vmafx jobs {name}") for name in absent), _summary(found.summary)]
    if any(eta(row, row.doneIn) == "unknown" for row in rows):
        foot.append("ETAs are unknown until a similar job has finished here")
    return Listing([_row(row, now) for row in rows], JobQueue(rows, found.summary), foot)


def _row(row: QueueRow, now: datetime) -> ListingRow:
    cells = (
        row.position,
        row.name,
        row.priority,
        duration(elapsed(row.created, now)),
        eta(row, row.startsIn),
        eta(row, row.doneIn),
        f"{row.reason}: {row.message}",
    )
    return ListingRow(row.key, row, cells, row.without_times())


def eta(row: QueueRow, seconds: float | None) -> str:
    if seconds is None:
        return "unknown" if row.runs_in_time() else "-"
    return "now" if seconds < 1 else f"~{duration(seconds)}"


def _summary(told: QueueSummary) -> str:
    held = f" ({told.held} held back)" if told.held else ""
    slots = f"{told.free} of {told.slots} slots free" if told.slots else "no node takes jobs"
    vendors = ", ".join(f"{vendor} {one.free} of {one.slots}" for vendor, one in told.vendors.items())
    return f"{told.waiting} waiting{held}, {told.running} running; {slots}{f' ({vendors})' if vendors else ''}"
