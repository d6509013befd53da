"""What all commands that look at a cluster have in common: their options, the connection, and how they are stopped."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Annotated, Literal

import typer

from vmafx.cli.tables import cell
from vmafx.fleet.errors import FleetError
from vmafx.fleet.reader import is_missing
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

CLUSTER = "Cluster"
ERRORS: tuple[type[Exception], ...] = (FleetError, KubeError)
OutputFormat = Literal["table", "json", "yaml"]

NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="Namespace (default: that of the current context).", rich_help_panel=CLUSTER
    ),
]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Show all namespaces.", rich_help_panel=CLUSTER)
]
KubeconfigOption = Annotated[
    str,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file (default: $KUBECONFIG, or ~/.kube/config).",
        rich_help_panel=CLUSTER,
    ),
]
ContextOption = Annotated[
    str, typer.Option("--context", help="Context of the kubeconfig to use.", rich_help_panel=CLUSTER)
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Keep watching: a live table on a terminal, otherwise a line per change.")
]

ClusterCommand = Callable[[Client, str], Coroutine[None, None, int | None]]


def run_with_client(
    work: ClusterCommand, kubeconfig: str, context: str, namespace: str, *, everywhere: bool = False
) -> None:
    """Do `work` with a client and the namespace that is meant, empty for all; it may return an exit code."""
    if everywhere and namespace:
        raise typer.BadParameter("--namespace and --all-namespaces cannot be combined")
    try:
        code = asyncio.run(_connected(work, kubeconfig, context, namespace, everywhere=everywhere))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if code:
        raise typer.Exit(code)


def none_of(kind: str, namespace: str, *, some: bool) -> str:
    """`some`: only certain ones were asked for."""
    where = f"namespace {namespace}" if namespace else "any namespace"
    return f"no {'matching ' if some else ''}{kind} found in {where}"


async def note_missing(client: Client, namespace: str) -> None:
    """For those who found nothing: that may be because of a slip in the name of the namespace, empty for all."""
    if namespace and await is_missing(client, namespace):
        typer.echo(f"note: namespace {cell(namespace)} does not exist", err=True)


async def _connected(
    work: ClusterCommand, kubeconfig: str, context: str, namespace: str, *, everywhere: bool
) -> int | None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    config = load_config(kubeconfig or None, context or None)
    async with Client(config) as client:
        return await work(client, "" if everywhere else namespace or config.namespace)
