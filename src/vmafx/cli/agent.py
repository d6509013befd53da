"""`vmafx agent`: scores on this machine what a controller hands out."""

import os

import typer

ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
    )(agent)


def agent(context: typer.Context) -> None:
    """Score on this machine what a controller hands out; for machines outside the cluster. `--help` lists its flags."""
    # gRPC reads it when it is imported: what matters of its trouble is logged by us, as we log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from vmafx.agent.main import main as run  # noqa: PLC0415 - the help of `vmafx` does without it

    run(context.args)
