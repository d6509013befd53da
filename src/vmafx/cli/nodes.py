"""`vmafx nodes`: who does the work, and who does not."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingDiff, ListingPrinter, ListingRow, warn_unreadable
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.reader import RUNNING, FleetJob, FleetNode, FleetReader
from vmafx.fleet.rows import NodeRow, key_of, node_row
from vmafx.fleet.watch import LiveCaches, jobs_informer, nodes_informer
from vmafx.kube import Client, ObjectKey

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("NAME", "VENDOR", "RUNTIME", "HEALTHY", "JOBS", "FREE", "DEVICE", "FPS", "HEARTBEAT", "NOTE"),
    texts=("DEVICE", "NOTE"),
    spare=("RUNTIME", "DEVICE", "VENDOR", "HEARTBEAT", "FPS", "FREE"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(nodes)


def nodes(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show only these nodes.")] = None,
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    everywhere: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show nodes: their health, their jobs, and why a node takes no new ones.

    JOBS is the number of running jobs and the capacity, FREE the number of slots open to new jobs, HEARTBEAT the time
    since the agent was last heard from. NOTE says why a node gets no jobs, e.g. because it is cordoned or draining.
    """
    wanted = tuple(dict.fromkeys(names or ()))
    if wanted and everywhere:
        raise typer.BadParameter("names cannot be combined with --all-namespaces")

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, everywhere=everywhere), FleetReader(client, where)
        named = await reader.named_nodes(wanted)  # one that is not there is told at once
        if watch:
            there, running = nodes_informer(client, where), jobs_informer(client, where, RUNNING)
            async with LiveCaches(client, there, running) as live:
                if not there.store.values():
                    await cluster.note_missing(client, where)

                def look() -> Listing:
                    shown = (node for node in there.store.values() if not wanted or node.metadata.name in wanted)
                    return _sheet(shown, running.store.values(), where, some=bool(wanted))

                await printer.watch(live, ListingDiff(look, _gone))
        found = named if wanted else await reader.nodes()
        sheet = _sheet(found, await reader.jobs(RUNNING), where, some=bool(wanted))
        warn_unreadable(reader.unreadable)
        printer.once(sheet)
        if not found:
            await cluster.note_missing(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, everywhere=everywhere)


def _sheet(found: Iterable[FleetNode], running: Iterable[FleetJob], where: str, *, some: bool) -> Listing:
    """`some`: of all nodes only certain ones were asked for."""
    now = utc_now()
    used = Counter(ObjectKey(job.metadata.namespace, job.status.assignedNode or "") for job in running)
    rows = [node_row(node, used[key_of(node)]) for node in sorted(found, key=key_of)]
    return Listing(
        [_row(row, now) for row in rows], rows, () if rows else (cluster.none_of("nodes", where, some=some),)
    )


def _gone(row: ListingRow) -> ListingRow:
    gone = msgspec.structs.replace(row.document, healthy=None, used=0, free=0, reason="Deleted", message=None)
    return _row(gone, utc_now())


def _row(row: NodeRow, now: datetime) -> ListingRow:
    cells = (
        row.name,
        row.vendor,
        row.runtime,
        "unknown" if row.healthy is None else row.healthy,
        f"{row.used}/{row.capacity}",
        row.free,
        row.device,
        None if row.fps is None else f"{row.fps:.1f}",
        f"{duration(elapsed(row.lastHeartbeat, now))} ago" if row.lastHeartbeat else None,
        f"{row.reason}: {row.message}" if row.message else row.reason,
    )
    # A heartbeat comes every few seconds, and is no news.
    return ListingRow(row.key, row, cells, msgspec.structs.replace(row, lastHeartbeat=None))
