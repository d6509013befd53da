"""`vmafx train`: shows the progress of a training."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from vmafx.atomic_write import write_atomic
from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingDiff, ListingPrinter, ListingRow
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, as_json, as_yaml, cell, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.reader import FleetReader
from vmafx.fleet.trainings import TrainingRow, deleted_training, training_row
from vmafx.fleet.watch import LiveCaches, fleet_training_informer
from vmafx.kube import Client, ObjectKey
from vmafx.reports.learning import check_plot_name, learning_plot
from vmafx.scoring.errors import BadInput, ScoringError

ERRORS = (*cluster.ERRORS, ScoringError)
COLUMNS = Columns(
    heads=("NAME", "PHASE", "SAMPLES", "RATE", "LOSS", "PEARSON", "SPEARMAN", "VERSIONS", "CHECKPOINT", "NOTE"),
    texts=("NOTE",),
    optional=("CHECKPOINT", "VERSIONS", "RATE", "SPEARMAN"),
)
app = typer.Typer(help="Show the progress of trainings.", no_args_is_help=True, context_settings=HELP)


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app, name="train")


@app.command(context_settings=HELP)
def status(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the training.")],
    output: cluster.OutputOption = "table",
    watch: cluster.WatchOption = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a plot of loss and correlations over samples (.png, .svg or .html)."),
    ] = None,
    namespace: cluster.NamespaceOption = "",
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Show the phase of a training, its samples, quality and versions, and what needs attention.

    Loss is the mean squared error, and the correlations are those with the true scores, of samples that the model was
    not trained on. The rate is measured between the latest two versions.
    """
    if plot is not None:
        check_plot_name(plot.name)
        if watch:
            raise typer.BadParameter("--plot and --watch cannot be combined")

    async def work(client: Client, where: str) -> None:
        training = await FleetReader(client, where).training(name)
        if plot is not None:
            write_plot(plot, learning_plot(plot.name, name, training.status.checkpoints))
        if watch:
            await _watch(client, ObjectKey(where, name), output)
        row = training_row(training)
        match output:
            case "json":
                typer.echo(as_json(row))
            case "yaml":
                typer.echo(as_yaml(row))
            case _:
                typer.echo("\n".join(describe(row, utc_now())))

    cluster.run_with_client(work, kubeconfig, context, namespace)


async def _watch(client: Client, key: ObjectKey, output: cluster.OutputFormat) -> None:
    informer = fleet_training_informer(client, key)

    def current() -> Listing:
        rows = [training_row(training) for training in informer.store.values()]
        footer = [note for row in rows for note in _notes(row)]
        return Listing([_listing_row(row, utc_now()) for row in rows], rows, footer)

    async with LiveCaches(client, informer) as caches:
        printer = ListingPrinter(COLUMNS, output, all_namespaces=False)
        await printer.watch(
            caches, ListingDiff(current, lambda row: _listing_row(deleted_training(row.document), utc_now()))
        )


def _listing_row(row: TrainingRow, now: datetime) -> ListingRow:
    cells = (
        row.name,
        row.phase,
        f"{row.samples:,}",
        _rate(row),
        _number(row.loss),
        _number(row.pearson),
        _number(row.spearman),
        row.versions,
        f"{duration(elapsed(row.lastCheckpoint, now))} ago" if row.lastCheckpoint else None,
        row.warnings[0] if row.warnings else row.message,
    )
    return ListingRow(row.key, row, cells, row)


def describe(row: TrainingRow, now: datetime) -> list[str]:
    """A line for each fact, and one for each warning."""
    ago = duration(elapsed(row.lastCheckpoint, now))
    message = "" if any((row.message or "") in text for text in row.warnings) else row.message
    facts = {
        "phase": f"{cell(row.phase)} ({cell(message)})" if message else cell(row.phase),
        "samples": f"{row.samples:,}" + (f", {_rate(row)}" if row.samplesPerMinute is not None else ""),
        "last sample": f"{duration(elapsed(row.lastSample, now))} ago" if row.lastSample else "-",
        "loss": cell(_number(row.loss)),
        "Pearson": cell(_number(row.pearson)),
        "Spearman": cell(_number(row.spearman)),
        "learning rate": "-" if row.learningRate is None else f"{row.learningRate:g}",
        "checkpoint": f"version {row.versions}, {ago} ago" if row.lastCheckpoint else "none yet",
        "version": cell(row.modelVersion),
        "model": cell(row.model),
    }
    width = max(map(len, facts)) + 2
    return [cell(row.name), *(f"  {name + ':':<{width}}{value}" for name, value in facts.items()), *_notes(row)]


def _notes(row: TrainingRow) -> list[str]:
    """What needs attention."""
    excluded = [f"node {node.name} is excluded: {node.message}" for node in row.excludedNodes]
    return [f"warning: {cell(text)}" for text in (*row.warnings, *excluded)]


def write_plot(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, content)
    except OSError as error:
        raise BadInput("options", f"the plot {path} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {path}", err=True)


def _rate(row: TrainingRow) -> str | None:
    return None if row.samplesPerMinute is None else f"{row.samplesPerMinute:,.0f}/min"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"
