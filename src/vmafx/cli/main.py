"""`vmafx`: the one way in."""

import signal
import sys
import traceback
from importlib import import_module
from typing import Annotated

import typer

from vmafx.cli.options import HELP

SOFTWARE = 70  # sysexits.h
# Each command by the module of vmafx.cli that has it: `add_to(app)` adds it, `ERRORS` are its expected failures.
COMMANDS = {
    name: name for name in ("score", "doctor", "submit", "queue", "jobs", "nodes", "top", "demo", "dev", "crd")
} | dict.fromkeys(("operator", "controller", "agent", "worker"), "roles")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom needed

        typer.echo(f"vmafx {version('vmafx')}")
        raise typer.Exit


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
    app, errors = build(sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        app()
    except errors as error:
        from vmafx.text import printable  # noqa: PLC0415 - seldom needed

        typer.echo(f"error: {printable(' '.join(str(error).split()))}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # noqa: BLE001 - a fault of ours: told in full, and by an exit code that means nothing else
        traceback.print_exc()
        sys.exit(SOFTWARE)


def build(wanted: str) -> tuple[typer.Typer, tuple[type[Exception], ...]]:
    """The app with the wanted command, or with all if that is none: a command pays only for its own imports."""
    app = typer.Typer(name="vmafx", no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP)
    app.callback()(options)
    errors: tuple[type[Exception], ...] = ()
    for name in [COMMANDS[wanted]] if wanted in COMMANDS else dict.fromkeys(COMMANDS.values()):
        module = import_module(f"vmafx.cli.{name}")
        module.add_to(app)
        errors += module.ERRORS
    return app, errors
