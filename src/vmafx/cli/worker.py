"""`vmafx worker`: the container of a job that runs as a Pod."""

import typer

from vmafx.cli.help import HELP

ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(worker)


def worker() -> None:
    """Score one job, as VMAFX_WORK says, and leave the answer as termination message; run by the operator's Pods."""
    from vmafx.worker.main import main as run  # noqa: PLC0415 - the help of `vmafx` does without it

    raise typer.Exit(run())
