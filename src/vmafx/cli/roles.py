"""`vmafx operator`, `controller`, `agent` and `worker`: the long-running processes, started from the command line."""

import os

import typer

from vmafx.cli.options import HELP

ERRORS: tuple[type[Exception], ...] = ()

# A role parses its flags itself, so that it takes the same ones however it is started.
_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    for role in (operator, controller, agent):
        app.command(context_settings=_ARGUMENTS, add_help_option=False)(role)
    app.command(context_settings=HELP)(worker)


def operator(context: typer.Context) -> None:
    """Run the operator (same as `vmafx-operator`). `--help` lists its flags."""
    from vmafx.operator.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def controller(context: typer.Context) -> None:
    """Run the controller, which serves clients and agents over gRPC and HTTP. `--help` lists its flags."""
    _silence_grpc()
    from vmafx.controller.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def agent(context: typer.Context) -> None:
    """Run an agent, which scores jobs on this machine, inside or outside the cluster. `--help` lists its flags."""
    _silence_grpc()
    from vmafx.agent.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    run(context.args)


def worker() -> None:
    """Score the attempt described by VMAFX_WORK and write the result; started by the operator's Pods and by agents."""
    from vmafx.worker.main import main as run  # noqa: PLC0415 - `vmafx --help` does not need it

    raise typer.Exit(run())


def _silence_grpc() -> None:
    """gRPC reads this when it is imported; vmafx logs the errors that matter itself."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
