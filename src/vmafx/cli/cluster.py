"""What the commands that use a cluster share: options, the connection, and how a signal stops them."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Annotated, Literal

import typer

from vmafx.cli.tables import cell
from vmafx.fleet.errors import FleetError
from vmafx.fleet.reader import namespace_exists
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

CLUSTER = "Cluster"
ERRORS: tuple[type[Exception], ...] = (FleetError, KubeError)
OutputFormat = Literal["table", "json", "yaml"]

NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Namespace (default: that of the current context).",
        rich_help_panel=CLUSTER,
    ),
]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="List across all namespaces.", rich_help_panel=CLUSTER)
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
    str,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Kubeconfig context (default: the current context).",
        rich_help_panel=CLUSTER,
    ),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
WatchOption = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Watch for changes: a live table on a terminal, one line per change otherwise."),
]

ClusterCommand = Callable[[Client, str], Coroutine[None, None, int | None]]


def run_with_client(
    work: ClusterCommand, kubeconfig: str, context: str, namespace: str, *, all_namespaces: bool = False
) -> None:
    """Run `work` with a client and the namespace to use, empty for all. Its result, if any, is the exit code."""
    if all_namespaces and namespace:
        raise typer.BadParameter("--namespace and --all-namespaces cannot be combined")
    try:
        code = asyncio.run(_connect_and_run(work, kubeconfig, context, namespace, all_namespaces=all_namespaces))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if code:
        raise typer.Exit(code)


async def _connect_and_run(
    work: ClusterCommand, kubeconfig: str, context: str, namespace: str, *, all_namespaces: bool
) -> int | None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    config = load_config(kubeconfig or None, context or None)
    async with Client(config) as client:
        return await work(client, "" if all_namespaces else namespace or config.namespace)


def none_found(kind: str, namespace: str, *, filtered: bool) -> str:
    """The line that stands in place of an empty table."""
    where = f"namespace {namespace}" if namespace else "any namespace"
    return f"no {'matching ' if filtered else ''}{kind} found in {where}"


async def note_missing_namespace(client: Client, namespace: str) -> None:
    """After an empty result: say so if the namespace does not exist, since its name may be mistyped."""
    if namespace and not await namespace_exists(client, namespace):
        typer.echo(f"note: namespace {cell(namespace)} does not exist", err=True)
