"""`vmafx demo`: the whole system on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from vmafx.cli.options import HELP
from vmafx.demo.progress import DemoError
from vmafx.devcluster import DevClusterError
from vmafx.kube.errors import KubeError
from vmafx.scoring.errors import NodeFault

ERRORS: tuple[type[Exception], ...] = (DemoError, DevClusterError, KubeError, NodeFault)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster running until Ctrl-C.")] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Train a model on the scores, and score with it.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve scores and a page for them instead, until Ctrl-C.")
    ] = False,
    output: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Folder for clips, jobs and charts.")
    ] = Path("demo"),
) -> None:
    """Run the whole system on this machine: encode, score and compare six clips.

    Starts a Kubernetes API server, the operator, the controller and an agent; submits a job for each encode; draws
    bitrate against quality; and stops everything again.
    """
    if training:
        from vmafx.demo import training as training_demo  # noqa: PLC0415 - `vmafx --help` does not need it

        training_demo.run(output.absolute())
        return
    if serve:
        from vmafx.demo import serve as serve_demo  # noqa: PLC0415 - `vmafx --help` does not need it

        serve_demo.run(output.absolute())
        return
    from vmafx.demo.main import run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(output.absolute(), keep=keep)
