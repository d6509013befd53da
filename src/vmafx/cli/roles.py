"""`vmafx operator`, `controller`, `agent`, `trainer`, `serve`, `mcp`, `worker`: the processes of servers and nodes."""

import importlib.util
import os

import typer

from vmafx.cli.options import HELP

ERRORS: tuple[type[Exception], ...] = ()

# A role parses its own flags, so that they are the same however it is started.
_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    for role in (operator, controller, agent, trainer, serve, mcp):
        app.command(context_settings=_ARGUMENTS, add_help_option=False)(role)
    app.command(context_settings=HELP)(worker)


def operator(context: typer.Context) -> None:
    """Run the operator, which reconciles jobs and nodes and places jobs."""
    from vmafx.operator.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def controller(context: typer.Context) -> None:
    """Run the controller, which serves clients and agents over gRPC and HTTP."""
    _silence_grpc()
    from vmafx.controller.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def agent(context: typer.Context) -> None:
    """Run an agent, which scores jobs on a machine outside the cluster."""
    _silence_grpc()
    from vmafx.agent.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def trainer(context: typer.Context) -> None:
    """Run the trainer of a VmafxModelTraining. Started by the operator, not by hand."""
    # Read when numpy is imported. The matrices are small: more threads only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from vmafx.trainer.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def serve(context: typer.Context) -> None:
    """Run the scoring server: scores over HTTP, with a page for people."""
    _silence_grpc()
    from vmafx.serving.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def mcp(context: typer.Context) -> None:
    """Run the MCP server: scores, comparisons and jobs as tools for assistants."""
    if importlib.util.find_spec("mcp") is None:
        typer.echo("error: `vmafx mcp` needs the MCP SDK; install it: pip install 'vmafx[mcp]'", err=True)
        raise typer.Exit(1)
    from vmafx.mcp.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def worker() -> None:
    """Score one attempt of a job. Started by Pods of the operator and by agents, not by hand.

    Reads the attempt from VMAFX_WORK and writes the result.
    """
    from vmafx.worker.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    raise typer.Exit(run())


def _silence_grpc() -> None:
    """Turn off gRPC's own logging before it is imported; vmafx logs the errors that matter."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
