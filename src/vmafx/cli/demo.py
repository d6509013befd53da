"""`vmafx demo`: the whole product on this machine, in seconds."""

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
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C.")] = False,
    output: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where clips, jobs and pictures are put.")
    ] = Path("demo"),
) -> None:
    """Make six encodes, have a fleet of one agent score them, and draw rate against quality.

    Starts a Kubernetes API server, the operator, the controller and an agent, and ends them again.
    """
    from vmafx.demo.main import run  # noqa: PLC0415 - the help of `vmafx` does without it

    run(output.absolute(), keep=keep)
