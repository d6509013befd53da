"""`vmafx jobs`: what there is, and what became of it."""

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
from vmafx.fleet.rows import JobRow, deleted, job_row, key_of
from vmafx.fleet.watch import LiveCaches, jobs_informer
from vmafx.kube import Client
from vmafx.runtime.informer import Informer
from vmafx.runtime.store import ObjectChange

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("NAME", "PHASE", "SCORE", "NODE", "ATTEMPTS", "AGE", "TIME", "MESSAGE"),
    texts=("MESSAGE",),
    spare=("ATTEMPTS", "NODE", "AGE", "TIME"),
)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(jobs)


def jobs(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Show only these jobs.")] = None,
    phase: Annotated[
        list[str] | None, typer.Option(help=f"Show only jobs in this phase ({', '.join(ALL_PHASES)}); may be repeated.")
    ] = None,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Label selector, e.g. team=a,tier!=test.")] = "",
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    namespace: cluster.NamespaceOption = "",
    everywhere: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show jobs, oldest first: their phase, score, node and message.

    AGE is the time since the job was created, TIME the time from its first start to its end.
    """
    wanted, phases = tuple(dict.fromkeys(names or ())), _phases(phase or [])
    if wanted and (everywhere or selector):
        raise typer.BadParameter("names cannot be combined with --all-namespaces or --selector")

    some = bool(wanted or selector or phase)

    async def work(client: Client, where: str) -> None:
        printer, reader = ListingPrinter(COLUMNS, output, everywhere=everywhere), FleetReader(client, where)
        found = await reader.named(wanted) if wanted else []  # one that is not there is told at once
        if watch:
            informer = jobs_informer(client, where, phases, selector, wanted)
            async with LiveCaches(client, informer, labels=selector) as live:
                if not informer.store.values():
                    await cluster.note_missing(client, where)
                await printer.watch(live, _Watched(informer, wanted, phases, some=some))
        found = [job for job in found if job.status.phase in phases] if wanted else await reader.jobs(phases, selector)
        warn_unreadable(reader.unreadable)
        printer.once(_sheet(found, where, some=some))
        if not found:
            await cluster.note_missing(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, everywhere=everywhere)


def _phases(named: Iterable[str]) -> tuple[Phase, ...]:
    """Given one by one, or several with commas; all if none is."""
    words = [word for one in named for word in one.lower().split(",") if word]
    known = {phase.lower(): phase for phase in ALL_PHASES}
    if wrong := [word for word in words if word not in known]:
        raise typer.BadParameter(f"unknown phase {wrong[0]!r}; the phases are {', '.join(ALL_PHASES)}")
    return tuple(known[word] for word in words) or ALL_PHASES


class _Watched:
    """All jobs of a cache, and of each change the job that it concerns."""

    def __init__(
        self, informer: Informer[FleetJob], names: Collection[str], phases: Collection[Phase], *, some: bool
    ) -> None:
        self._informer, self._names, self._phases, self._some = informer, names, phases, some

    def sheet(self) -> Listing:
        return _sheet(self._informer.store.values(), self._informer.namespace, some=self._some)

    def changed(self, changes: Sequence[ObjectChange[Any]]) -> Iterator[ListingRow]:
        """Of jobs that are shown, or were until now: also how a job ended that is shown only while it runs."""
        now = utc_now()
        for change in changes:
            job = change.new or change.old
            if job is not None and (change.old is not None or self._wanted(job)):
                row = job_row(job)
                yield row_of(row if change.new is not None else deleted(row), now)

    def _wanted(self, job: FleetJob) -> bool:
        return job.status.phase in self._phases and (not self._names or job.metadata.name in self._names)


def _sheet(found: Iterable[FleetJob], where: str, *, some: bool) -> Listing:
    """`some`: of all jobs only certain ones were asked for."""
    now = utc_now()
    rows = [job_row(job) for job in sorted(found, key=_age)]
    return Listing(
        [row_of(row, now) for row in rows], rows, () if rows else (cluster.none_of("jobs", where, some=some),)
    )


def _age(job: FleetJob) -> tuple[float, str, str]:
    created = job.metadata.creationTimestamp
    return (created.timestamp() if created else 0.0, *key_of(job))


def row_of(row: JobRow, now: datetime) -> ListingRow:
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
