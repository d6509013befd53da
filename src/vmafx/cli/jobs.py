"""`vmafx jobs`: lists jobs."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from vmafx.api.job import Phase
from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingPrinter, ListingRow, warn_unreadable
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.reader import ALL_PHASES, FleetJob, FleetReader
from vmafx.fleet.rows import JobRow, deleted_row, job_row
from vmafx.fleet.watch import LiveCaches, fleet_jobs_informer
from vmafx.kube import Client, key_of
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("NAME", "PHASE", "SCORE", "NODE", "ATTEMPTS", "AGE", "TIME", "MESSAGE"),
    texts=("MESSAGE",),
    optional=("ATTEMPTS", "NODE", "AGE", "TIME"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(jobs)


def jobs(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of jobs (default: all jobs).")
    ] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(metavar="PHASE", help=f"Show only jobs in this phase: {', '.join(ALL_PHASES)}; may be repeated."),
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            "--selector", "-l", metavar="SELECTOR", help="Label selector to filter on, e.g. team=a,tier!=test."
        ),
    ] = "",
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    all_namespaces: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """List jobs with their phase, score, node and message, oldest first.

    AGE is the time since the job was created, TIME the time from its first start to its end.
    """
    selected, phases = tuple(dict.fromkeys(names or ())), _phases(phase or [])
    if selected and (all_namespaces or selector):
        raise typer.BadParameter("names cannot be combined with --all-namespaces or --selector")

    filtered = bool(selected or selector or phase)

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, all_namespaces=all_namespaces), FleetReader(client, where)
        named = await reader.named_jobs(selected)  # fails if one does not exist, also before a watch
        if watch:
            informer = fleet_jobs_informer(client, where, phases, selector, selected)
            async with LiveCaches(client, informer, labels=selector) as caches:
                if not informer.store.values():
                    await cluster.note_missing_namespace(client, where)
                await printer.watch(caches, JobsSource(informer, selected, phases, filtered=filtered))
        if selected:
            found = [job for job in named if job.status.phase in phases]
        else:
            found = await reader.jobs(phases, selector)
        warn_unreadable(reader.unreadable)
        printer.once(_listing(found, where, filtered=filtered))
        if not found:
            await cluster.note_missing_namespace(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, all_namespaces=all_namespaces)


def _phases(texts: Iterable[str]) -> tuple[Phase, ...]:
    """The phases that --phase names, each text one or several separated by commas; all if there are none."""
    names = [name for text in texts for name in text.lower().split(",") if name]
    known = {phase.lower(): phase for phase in ALL_PHASES}
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"unknown phase {unknown[0]!r}; choose from {', '.join(ALL_PHASES)}")
    return tuple(known[name] for name in names) or ALL_PHASES


class JobsSource:
    """The jobs of a cache; each change concerns one row."""

    def __init__(
        self, informer: Informer[FleetJob], names: Collection[str], phases: Collection[Phase], *, filtered: bool
    ) -> None:
        self._informer, self._names, self._phases, self._filtered = informer, names, phases, filtered

    def listing(self) -> Listing:
        return _listing(self._informer.store.values(), self._informer.namespace, filtered=self._filtered)

    def changed(self, changes: Sequence[ObjectChange[Any]]) -> Iterator[ListingRow]:
        """Rows of jobs that match, or matched before the change: a job that leaves the phases is shown once more."""
        now = utc_now()
        for change in changes:
            job = change.new or change.old
            if job is not None and (change.old is not None or self._matches(job)):
                row = job_row(job)
                yield listing_row(row if change.new is not None else deleted_row(row), now)

    def _matches(self, job: FleetJob) -> bool:
        return job.status.phase in self._phases and (not self._names or job.metadata.name in self._names)


def _listing(jobs: Iterable[FleetJob], namespace: str, *, filtered: bool) -> Listing:
    now = utc_now()
    rows = [job_row(job) for job in sorted(jobs, key=_creation_order)]
    footer = () if rows else (cluster.none_found("jobs", namespace, filtered=filtered),)
    return Listing([listing_row(row, now) for row in rows], rows, footer)


def _creation_order(job: FleetJob) -> tuple[float, str, str]:
    created = job.metadata.creationTimestamp
    return (created.timestamp() if created else 0.0, *key_of(job))


def listing_row(row: JobRow, now: datetime) -> ListingRow:
    cells = (
        row.name,
        row.phase,
        None if row.score is None else f"{row.score:.3f}",
        row.node,
        row.attempts,
        duration(elapsed(row.created, now)),
        duration(elapsed(row.started, row.finished or now)),
        f"{row.reason}: {row.message}" if row.reason and row.message else row.message,
    )
    return ListingRow(row.key, row, cells, row)
