"""`vmafx crd`: writes or checks the files that are generated from the API types, or installs the CRDs on a cluster."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from vmafx.cli.options import HELP
from vmafx.devcluster import DevClusterError, crds
from vmafx.generate.chart import CHART, VALUES
from vmafx.generate.chart_values import ChartError
from vmafx.generate.files import crds_as_one, files
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError

ERRORS: tuple[type[Exception], ...] = (DevClusterError, KubeError)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(crd)


def crd(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Root of the source tree to write to.")
    ] = Path(),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if a file is out of date.")
    ] = False,
    print_crds: Annotated[
        bool, typer.Option("--print", help="Print the CRDs only, for kubectl apply --server-side -f -.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Install or update the CRDs on the cluster of the kubeconfig, or of the Pod."),
    ] = False,
) -> None:
    """Generate the CRDs, the RBAC roles, parts of the Helm chart, docs/api.md and docs/environment.md."""
    if print_crds:
        typer.echo(crds_as_one())
        return
    if apply:
        for name in asyncio.run(_apply()):
            typer.echo(f"{name} is installed")
        return
    _generate(directory, check=check)


def _generate(directory: Path, *, check: bool) -> None:
    try:
        generated = {directory / path: content for path, content in files(directory).items()}
    except ChartError as error:
        typer.echo(f"error: {CHART / VALUES}: {error}", err=True)
        raise typer.Exit(1) from error
    outdated = [path for path, content in generated.items() if _read(path) != content]
    if check:
        for path in outdated:
            typer.echo(f"{path} is out of date", err=True)
        if outdated:
            typer.echo("error: generated files are out of date; run `vmafx crd` and commit the result", err=True)
            raise typer.Exit(1)
        typer.echo(f"{len(generated)} files are up to date")
        return
    for path in outdated:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(generated[path])
        except OSError as error:
            typer.echo(f"error: cannot write {path}: {error.strerror}", err=True)
            raise typer.Exit(1) from error
        typer.echo(f"wrote {path}")
    if not outdated:
        typer.echo(f"{len(generated)} files are up to date")


async def _apply() -> list[str]:
    async with Client(load_config()) as client:
        return await crds.install_crds(client)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
