"""`vmafx operator`: the same as `vmafx-operator`."""

import typer

ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
    )(operator)


def operator(context: typer.Context) -> None:
    """Run the operator; the same as `vmafx-operator`, whose flags it takes."""
    from vmafx.operator.main import main as run  # noqa: PLC0415 - the help of `vmafx` does without it

    run(context.args)
