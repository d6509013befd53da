"""`vmafx worker`: the container of a job that runs as a Pod."""

import typer

ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command()(worker)


def worker() -> None:
    """Score one job, as VMAFX_WORK says, and leave the answer as termination message; run by the operator's Pods."""
    from vmafx.worker.main import main as run  # noqa: PLC0415 - the help of `vmafx` does without it

    raise typer.Exit(run())
