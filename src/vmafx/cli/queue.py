"""`vmafx queue`: lists the waiting jobs."""

from collections.abc import Collection
from datetime import datetime
from typing import Annotated

import typer

from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingDiff, ListingPrinter, ListingRow, warn_unreadable
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, cell, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.queue import JobQueue, QueueRow, QueueSummary, left_row, read_queue
from vmafx.fleet.reader import UNFINISHED_PHASES, FleetReader
from vmafx.fleet.watch import LiveCaches, LiveQueue, fleet_jobs_informer, fleet_nodes_informer
from vmafx.kube import Client

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("POSITION", "NAME", "PRIORITY", "WAITED", "STARTS", "ETA", "REASON"),
    texts=("REASON",),
    optional=("PRIORITY", "STARTS", "WAITED", "POSITION"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(queue)


def queue(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of jobs (default: all waiting jobs).")
    ] = None,
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    all_namespaces: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """List waiting jobs with their position, the reason they are waiting, and the estimated start.

    POSITION is by priority, then by age, within a namespace; a job that is suspended, or that fits no usable node, has
    none. STARTS is the estimated time until a job starts, ETA until it is done. Both are based on the durations of
    finished jobs, and unknown until one has finished.
    """
    selected = frozenset(names or ())

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, all_namespaces=all_namespaces), FleetReader(client, where)
        if watch:
            jobs, nodes = fleet_jobs_informer(client, where, UNFINISHED_PHASES), fleet_nodes_informer(client, where)
            async with LiveCaches(client, jobs, nodes) as caches:
                if not jobs.store.values():
                    await cluster.note_missing_namespace(client, where)
                await printer.watch(caches, _source(await LiveQueue.read(reader, jobs, nodes), selected))
        found = await read_queue(reader, utc_now())
        warn_unreadable(reader.unreadable)
        printer.once(_listing(found, selected))
        if not found.jobs:
            await cluster.note_missing_namespace(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, all_namespaces=all_namespaces)


def _source(live: LiveQueue, names: Collection[str]) -> ListingDiff:
    def left(row: ListingRow) -> ListingRow:
        return _row(left_row(row.document, live.job(row.key)), utc_now())

    return ListingDiff(lambda: _listing(live.at(utc_now()), names), left)


def _listing(queue: JobQueue, names: Collection[str]) -> Listing:
    now = utc_now()
    rows = [row for row in queue.jobs if not names or row.name in names]
    absent = sorted(set(names) - {row.name for row in rows})
    footer = [*(cell(f"{name} is not waiting; see: vmafx jobs {name}") for name in absent), _summary(queue.summary)]
    if any(eta(row, row.doneIn) == "unknown" for row in rows):
        footer.append("ETAs are unknown until a similar job has finished here")
    return Listing([_row(row, now) for row in rows], JobQueue(rows, queue.summary), footer)


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
        return "unknown" if row.is_schedulable() else "-"
    return "now" if seconds < 1 else f"~{duration(seconds)}"


def _summary(summary: QueueSummary) -> str:
    held = f" ({summary.held} held)" if summary.held else ""
    slots = f"{summary.free} of {summary.slots} slots free" if summary.slots else "no node accepts jobs"
    vendors = ", ".join(f"{vendor} {counts.free} of {counts.slots}" for vendor, counts in summary.vendors.items())
    return f"{summary.waiting} waiting{held}, {summary.running} running; {slots}{f' ({vendors})' if vendors else ''}"
