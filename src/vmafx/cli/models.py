"""`vmafx models`: lists the versions of trained models."""

from collections.abc import Iterable
from copy import copy
from datetime import datetime
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vmafx.api.training import TrainingView
from vmafx.cli import cluster
from vmafx.cli.listing import Listing, ListingPrinter, ListingRow, warn_unreadable
from vmafx.cli.models_diff import diff
from vmafx.cli.options import HELP
from vmafx.cli.tables import Columns, duration, elapsed
from vmafx.clock import utc_now
from vmafx.fleet.reader import FleetReader
from vmafx.fleet.trainings import ModelRow, model_rows
from vmafx.kube import Client, ObjectKey, key_of

ERRORS = cluster.ERRORS
COLUMNS = Columns(
    heads=("NAME", "VERSION", "SAMPLES", "LOSS", "PEARSON", "SPEARMAN", "AGE", "MODEL"),
    optional=("AGE", "SPEARMAN", "SAMPLES"),
)


class _ListByDefault(TyperGroup):
    """`vmafx models` and `vmafx models NAME` list; other commands are named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in HELP["help_option_names"]):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Also show the arguments and options of the default command."""
        shown = copy(self)
        shown.params = [*self.params, *self.commands["list"].params]
        TyperGroup.format_help(shown, ctx, formatter)


app = typer.Typer(
    cls=_ListByDefault, help="List the versions of trained models, and compare models.", context_settings=HELP
)
app.command("diff", context_settings=HELP)(diff)


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app, name="models")


@app.command("list", context_settings=HELP)
def models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of trainings (default: all trainings).")
    ] = None,
    output: cluster.OutputOption = "table",
    namespace: cluster.NamespaceOption = "",
    all_namespaces: cluster.AllNamespacesOption = False,
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """List the versions of the models of trainings, the latest first. This is the default command.

    Loss and correlations are those of samples that the version was not trained on. MODEL is what --model of
    `vmafx score` and `vmafx submit` takes; it is missing for a version that is not in a registry.
    """
    selected = tuple(dict.fromkeys(names or ()))
    if selected and all_namespaces:
        raise typer.BadParameter("names cannot be combined with --all-namespaces")

    async def work(client: Client, where: str) -> None:
        reader = FleetReader(client, where)
        trainings = [await reader.training(name) for name in selected] if selected else await reader.trainings()
        warn_unreadable(reader.unreadable)
        printer = ListingPrinter(COLUMNS, output, all_namespaces=all_namespaces)
        printer.once(_listing(trainings, where, filtered=bool(selected)))
        if not trainings:
            await cluster.note_missing_namespace(client, where)

    cluster.run_with_client(work, kubeconfig, context, namespace, all_namespaces=all_namespaces)


def _listing(trainings: Iterable[TrainingView], namespace: str, *, filtered: bool) -> Listing:
    rows = [row for training in sorted(trainings, key=key_of) for row in model_rows(training)]
    footer = () if rows else (cluster.none_found("versions of models", namespace, filtered=filtered),)
    return Listing([_row(row, utc_now()) for row in rows], rows, footer)


def _row(row: ModelRow, now: datetime) -> ListingRow:
    quality: list[Any] = [None if value is None else f"{value:.4g}" for value in (row.loss, row.pearson, row.spearman)]
    age = duration(elapsed(row.created, now))
    cells = (row.name, row.version, f"{row.samples:,}", *quality, age, row.model)
    return ListingRow(ObjectKey(row.namespace, f"{row.name}@{row.version}"), row, cells, row)
