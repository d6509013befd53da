"""`vmafx nodes`: lists nodes."""

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
from vmafx.fleet.rows import NodeRow, node_row
from vmafx.fleet.watch import LiveCaches, fleet_jobs_informer, fleet_nodes_informer
from vmafx.kube import Client, ObjectKey, key_of

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("NAME", "VENDOR", "RUNTIME", "HEALTHY", "JOBS", "FREE", "DEVICE", "FPS", "HEARTBEAT", "NOTE"),
    texts=("DEVICE", "NOTE"),
    optional=("RUNTIME", "DEVICE", "VENDOR", "HEARTBEAT", "FPS", "FREE"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(nodes)


def nodes(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of nodes (default: all nodes).")
    ] = None,
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    all_namespaces: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """List nodes with their health, running jobs and free slots.

    JOBS is the number of running jobs and the capacity, FREE the number of slots open to new jobs, HEARTBEAT the time
    since the last heartbeat of the agent. NOTE says why a node gets no jobs, e.g. because it is cordoned or draining.
    """
    selected = tuple(dict.fromkeys(names or ()))
    if selected and all_namespaces:
        raise typer.BadParameter("names cannot be combined with --all-namespaces")

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, all_namespaces=all_namespaces), FleetReader(client, where)
        named = await reader.named_nodes(selected)  # fails if one does not exist, also before a watch
        if watch:
            nodes_cache, running_cache = (
                fleet_nodes_informer(client, where),
                fleet_jobs_informer(client, where, RUNNING),
            )
            async with LiveCaches(client, nodes_cache, running_cache) as caches:
                if not nodes_cache.store.values():
                    await cluster.note_missing_namespace(client, where)

                def current() -> Listing:
                    cached = nodes_cache.store.values()
                    shown = (node for node in cached if not selected or node.metadata.name in selected)
                    return _listing(shown, running_cache.store.values(), where, filtered=bool(selected))

                await printer.watch(caches, ListingDiff(current, _deleted))
        found = named if selected else await reader.nodes()
        listing = _listing(found, await reader.jobs(RUNNING), where, filtered=bool(selected))
        warn_unreadable(reader.unreadable)
        printer.once(listing)
        if not found:
            await cluster.note_missing_namespace(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, all_namespaces=all_namespaces)


def _listing(nodes: Iterable[FleetNode], running: Iterable[FleetJob], namespace: str, *, filtered: bool) -> Listing:
    now = utc_now()
    used = Counter(ObjectKey(job.metadata.namespace, job.status.assignedNode or "") for job in running)
    rows = [node_row(node, used[key_of(node)]) for node in sorted(nodes, key=key_of)]
    footer = () if rows else (cluster.none_found("nodes", namespace, filtered=filtered),)
    return Listing([_row(row, now) for row in rows], rows, footer)


def _deleted(row: ListingRow) -> ListingRow:
    deleted = msgspec.structs.replace(row.document, healthy=None, used=0, free=0, reason="Deleted", message=None)
    return _row(deleted, utc_now())


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
    # A heartbeat every few seconds is not a change worth a line.
    return ListingRow(row.key, row, cells, msgspec.structs.replace(row, lastHeartbeat=None))
