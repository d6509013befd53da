"""The entry point of `vmafx`: loads the command that is called, and maps errors to exit codes."""

import signal
import sys
import traceback
from importlib import import_module

import typer

from vmafx.cli.options import HELP, VersionFlag

EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
# The module of vmafx.cli that has each command.
COMMANDS = {
    name: name
    for name in (
        "score", "doctor", "devices", "submit", "label", "queue", "jobs", "nodes", "top", "train", "models", "demo",
        "dev", "crd",
    )
} | dict.fromkeys(("operator", "controller", "agent", "trainer", "worker", "serve", "mcp"), "roles")  # fmt: skip


def main() -> None:
    """Run a command; an expected error becomes one line and exit code 1."""
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
    except Exception:  # noqa: BLE001 - a bug: show the traceback, and use an exit code that nothing else has
        traceback.print_exc()
        sys.exit(EXIT_INTERNAL_ERROR)


def build(command: str) -> tuple[typer.Typer, tuple[type[Exception], ...]]:
    """The app with only this command, so that only its modules are imported; with all commands if it is unknown."""
    app = typer.Typer(name="vmafx", no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP)
    app.callback()(options)
    errors: tuple[type[Exception], ...] = ()
    for name in [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values()):
        module = import_module(f"vmafx.cli.{name}")
        module.add_to(app)
        errors += module.ERRORS
    return app, errors


def _interrupt(_number: int, _frame: object) -> None:
    """Handle SIGTERM like Ctrl-C, so that the command cleans up."""
    raise KeyboardInterrupt


def options(_version: VersionFlag = False) -> None:
    """Measure the visual quality of encoded video (VMAF), on this machine or on Kubernetes."""
