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

from vmafx.cli.progress import spinner
from vmafx.devcluster import ClusterOptions, DevCluster, DevClusterError, binaries, crds, paths, tools
from vmafx.devcluster.cluster import ClusterState
from vmafx.devcluster.components import ALL, OPTIONAL
from vmafx.devcluster.progress import duration
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

app = typer.Typer(
    help="A Kubernetes control plane on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.",
    no_args_is_help=True,
)

ERRORS = (DevClusterError, KubeError)
Name = Annotated[str, typer.Option("--name", help="Which cluster; several can run at once.")]


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app, name="dev")


@app.command()
def up(
    name: Name = "dev",
    without: Annotated[
        str, typer.Option(help="Leave these out: controller-manager, scheduler; separated by commas.")
    ] = "",
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C, and end with it.")] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the API server; a free one if not said.")
    ] = None,
    with_crds: Annotated[bool, typer.Option("--crds/--no-crds", help="Install the kinds of vmafx.")] = True,
) -> None:
    """Start a cluster, and return once it is ready; it runs until `vmafx dev down`."""
    options = ClusterOptions(without=_components(without), port=port, tethered=foreground)
    started = time.monotonic()
    with spinner() as shown:
        cluster = DevCluster(paths.cluster_folder(name), options, shown)
        if foreground:  # a shell's background jobs start with Ctrl-C ignored; whoever sends it here means it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        shown.step(f"starting cluster {name!r}")
        ours = cluster.up()
        if foreground and not ours:
            raise DevClusterError(f"cluster {name!r} runs in the background; `vmafx dev down{_option(name)}` first")
        try:
            if with_crds:
                asyncio.run(_install_crds(cluster.kubeconfig))
        except BaseException:
            if ours:
                cluster.down()
            raise
    try:
        state = _state(name)
        took = f"is up in {duration(time.monotonic() - started)}" if ours else "was running already"
        typer.echo(f"cluster {name!r} (Kubernetes {state.version}) {took}: {state.server}")
        typer.echo(f'to use it:  eval "$(vmafx dev env{_option(name)})"    to end it:  vmafx dev down{_option(name)}')
        if foreground:
            _stay(cluster)
    finally:
        if foreground:
            cluster.down()


@app.command()
def fetch() -> None:
    """Fetch or build all that `up` and kubectl need, without starting anything."""
    with spinner() as shown:
        binaries.find_binaries(ALL, shown)
        tools.kubectl(shown)


@app.command()
def down(
    name: Name = "dev",
    everything: Annotated[bool, typer.Option("--all", help="Every cluster of this user.")] = False,
) -> None:
    """Stop a cluster and remove all it stored."""
    folders = sorted(paths.clusters().glob("[a-z0-9]*")) if everything else [paths.cluster_folder(name)]
    for folder in folders:
        there = DevCluster(folder).down()
        typer.echo(f"cluster {folder.name!r} {'is down' if there else 'is not there; nothing to do'}")
    if not folders:
        typer.echo("no cluster is there; nothing to do")


@app.command()
def status(
    name: Name = "dev",
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="How to show it.")] = "table",
) -> None:
    """Show a cluster's components; exit code 1 unless all of them run."""
    state = _state(name)
    rows = [{"component": one.name, "pid": one.pid, "running": one.alive()} for one in state.processes]
    if output == "json":
        typer.echo(json.dumps({"name": name, "version": state.version, "server": state.server, "components": rows}))
    else:
        typer.echo(f"cluster {name!r}, Kubernetes {state.version}, {state.server}")
        for row in rows:
            typer.echo(f"  {row['component']:<25}{'running' if row['running'] else 'ENDED':<9}pid {row['pid']}")
    if state.broken():
        raise typer.Exit(1)


@app.command()
def env(name: Name = "dev") -> None:
    """Print what a shell needs to use a cluster: eval "$(vmafx dev env)"."""
    if broken := _state(name).broken():
        raise DevClusterError(
            f"{', '.join(broken)} of cluster {name!r} ended; `vmafx dev up{_option(name)}` starts it anew"
        )
    typer.echo(f"export KUBECONFIG={shlex.quote(str(DevCluster(paths.cluster_folder(name)).kubeconfig))}")
    if not shutil.which("kubectl"):
        with spinner() as shown:
            kubectl = tools.kubectl(shown)
        typer.echo(f"export PATH={shlex.quote(str(kubectl.parent))}:$PATH")


@app.command()
def logs(
    component: Annotated[str | None, typer.Argument(help=f"One of {', '.join(ALL)}; all if not said.")] = None,
    name: Name = "dev",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more is written.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Lines to show of each.")] = 50,
) -> None:
    """Show what the components of a cluster wrote."""
    state = _state(name)
    started = [one.name for one in state.processes]
    wanted = started if component is None else [OPTIONAL.get(component, component)]
    if unknown := [one for one in wanted if one not in started]:
        raise DevClusterError(f"cluster {name!r} has no component {unknown[0]!r}: there is {', '.join(started)}")
    files = [paths.cluster_folder(name) / "logs" / f"{one}.log" for one in wanted]
    command = ["tail", "-n", str(tail), *(["-F"] if follow else []), *map(str, files)]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _components(text: str) -> frozenset[str]:
    """The components that --without names."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in OPTIONAL and name not in OPTIONAL.values():
            raise typer.BadParameter(f"{name!r} cannot be left out: choose from {', '.join(OPTIONAL)}")
    return frozenset(OPTIONAL.get(name, name) for name in names)


def _state(name: str) -> ClusterState:
    state = DevCluster(paths.cluster_folder(name)).state()
    if state is None:
        raise DevClusterError(f"cluster {name!r} is not there; `vmafx dev up{_option(name)}` starts it")
    return state


def _option(name: str) -> str:
    return "" if name == "dev" else f" --name {name}"


async def _install_crds(kubeconfig: Path) -> None:
    async with Client(load_config(kubeconfig)) as client:
        await crds.install_crds(client)


def _stay(cluster: DevCluster) -> None:
    """Wait until told to stop, or until a component ends by itself."""
    while (state := cluster.state()) and not state.broken():
        time.sleep(0.5)
    raise DevClusterError(f"{', '.join(state.broken()) if state else 'the cluster'} ended by itself")
