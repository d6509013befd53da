"""`vmafx`: the one way in."""

import signal
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from vmafx.cli import crd, dev, doctor, score
from vmafx.devcluster.errors import DevClusterError
from vmafx.kube.errors import KubeError

app = typer.Typer(
    name="vmafx",
    help="Video quality (VMAF) at cluster scale.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(dev.app, name="dev")
app.command(name="score")(score.score)
app.command(name="doctor")(doctor.doctor)
app.command(name="crd")(crd.crd)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def operator(context: typer.Context) -> None:
    """Run the operator; the same as `vmafx-operator`, whose flags it takes."""
    from vmafx.operator.main import main as run  # noqa: PLC0415 - only this command needs it

    run(context.args)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vmafx {version('vmafx')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Video quality (VMAF) at cluster scale."""


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM ends a command as Ctrl-C does: what it began is cleaned up."""
    raise KeyboardInterrupt


def main() -> None:
    """Run, and turn an expected failure into one line and exit code 1."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except (DevClusterError, KubeError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
