"""`vmafx dev`: a Kubernetes control plane on this machine."""

import asyncio
import json
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from vmafx.cli.spinner import spinner
from vmafx.devcluster import ClusterOptions, DevCluster, DevClusterError, binaries, crds, paths, tools
from vmafx.devcluster.cluster import ClusterState
from vmafx.devcluster.components import ALL, OPTIONAL
from vmafx.devcluster.progress import duration
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

app = typer.Typer(
    help="Run a Kubernetes control plane on this machine, for development and tests.",
    no_args_is_help=True,
)

ERRORS = (DevClusterError, KubeError)
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the cluster; several can run at once.")]


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app, name="dev")


@app.command()
def up(
    name: Name = "dev",
    without: Annotated[
        str,
        typer.Option(
            metavar="COMPONENTS",
            help="Components not to start, separated by commas: controller-manager, scheduler.",
        ),
    ] = "",
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops the cluster.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="PORT", help="Port of the API server (default: a free port)."),
    ] = None,
    with_crds: Annotated[bool, typer.Option("--crds/--no-crds", help="Install the CRDs of vmafx.")] = True,
) -> None:
    """Start a cluster of etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    Returns once the cluster is ready; it runs until `vmafx dev down`.
    """
    options = ClusterOptions(without=_components(without), port=port, tethered=foreground)
    started = time.monotonic()
    with spinner() as progress:
        cluster = DevCluster(paths.cluster_folder(name), options, progress)
        if foreground:  # a shell starts background jobs with SIGINT ignored; --foreground must react to it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        progress.step(f"starting cluster {name!r}")
        started_here = cluster.up()
        if foreground and not started_here:
            raise DevClusterError(
                f"cluster {name!r} is already running in the background; stop it first: vmafx dev down{_option(name)}"
            )
        try:
            if with_crds:
                asyncio.run(_install_crds(cluster.kubeconfig))
        except BaseException:
            if started_here:
                cluster.down()
            raise
    try:
        state = _state(name)
        state_text = f"is ready after {duration(time.monotonic() - started)}" if started_here else "was already running"
        typer.echo(f"cluster {name!r} (Kubernetes {state.version}) {state_text}: {state.server}")
        typer.echo(f'use it:  eval "$(vmafx dev env{_option(name)})"    stop it:  vmafx dev down{_option(name)}')
        if foreground:
            _wait_in_foreground(cluster)
    finally:
        if foreground:
            cluster.down()


@app.command()
def fetch() -> None:
    """Download or build the binaries that `up` needs, and kubectl, without starting anything."""
    with spinner() as progress:
        binaries.find_binaries(ALL, progress)
        tools.kubectl(progress)


@app.command()
def down(
    name: Name = "dev",
    everything: Annotated[bool, typer.Option("--all", help="Stop all clusters of this user.")] = False,
) -> None:
    """Stop a cluster and delete its data."""
    folders = sorted(paths.clusters().glob("[a-z0-9]*")) if everything else [paths.cluster_folder(name)]
    for folder in folders:
        existed = DevCluster(folder).down()
        typer.echo(f"cluster {folder.name!r} {'stopped' if existed else 'does not exist; nothing to do'}")
    if not folders:
        typer.echo("no clusters found; nothing to do")


@app.command()
def status(
    name: Name = "dev",
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
) -> None:
    """Show the components of a cluster. Exits with 1 unless all of them are running."""
    state = _state(name)
    rows = [{"component": process.name, "pid": process.pid, "running": process.alive()} for process in state.processes]
    if output == "json":
        typer.echo(json.dumps({"name": name, "version": state.version, "server": state.server, "components": rows}))
    else:
        typer.echo(f"cluster {name!r}, Kubernetes {state.version}, {state.server}")
        for row in rows:
            typer.echo(f"  {row['component']:<25}{'running' if row['running'] else 'EXITED':<9}pid {row['pid']}")
    if state.broken():
        raise typer.Exit(1)


@app.command()
def env(name: Name = "dev") -> None:
    """Print the shell commands that select a cluster, for eval "$(vmafx dev env)"."""
    if broken := _state(name).broken():
        raise DevClusterError(
            f"{', '.join(broken)} of cluster {name!r} exited; restart it: vmafx dev up{_option(name)}"
        )
    typer.echo(f"export KUBECONFIG={shlex.quote(str(DevCluster(paths.cluster_folder(name)).kubeconfig))}")
    if not shutil.which("kubectl"):
        with spinner() as progress:
            kubectl = tools.kubectl(progress)
        typer.echo(f"export PATH={shlex.quote(str(kubectl.parent))}:$PATH")


@app.command()
def logs(
    component: Annotated[
        str | None, typer.Argument(metavar="COMPONENT", help=f"One of {', '.join(ALL)} (default: all).")
    ] = None,
    name: Name = "dev",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs.")] = False,
    tail: Annotated[int, typer.Option(min=0, metavar="N", help="Number of lines to show of each log.")] = 50,
) -> None:
    """Print the logs of the components of a cluster."""
    state = _state(name)
    started = [process.name for process in state.processes]
    selected = started if component is None else [OPTIONAL.get(component, component)]
    if unknown := [one for one in selected if one not in started]:
        raise DevClusterError(f"cluster {name!r} has no component {unknown[0]!r}; choose from {', '.join(started)}")
    files = [paths.cluster_folder(name) / "logs" / f"{one}.log" for one in selected]
    command = ["tail", "-n", str(tail), *(["-F"] if follow else []), *map(str, files)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _components(text: str) -> frozenset[str]:
    """Parse --without."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in OPTIONAL and name not in OPTIONAL.values():
            raise typer.BadParameter(f"{name!r} cannot be left out; choose from {', '.join(OPTIONAL)}")
    return frozenset(OPTIONAL.get(name, name) for name in names)


def _state(name: str) -> ClusterState:
    state = DevCluster(paths.cluster_folder(name)).state()
    if state is None:
        raise DevClusterError(f"cluster {name!r} does not exist; start it: vmafx dev up{_option(name)}")
    return state


def _option(name: str) -> str:
    return "" if name == "dev" else f" --name {name}"


async def _install_crds(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        await crds.install_crds(client)


def _wait_in_foreground(cluster: DevCluster) -> None:
    """Wait for a signal; DevClusterError if a component exits before."""
    while (state := cluster.state()) and not state.broken():
        time.sleep(0.5)
    raise DevClusterError(f"{', '.join(state.broken()) if state else 'the cluster'} exited unexpectedly")
