"""`vmafx doctor`: checks whether this machine can score, and shows what with."""

import asyncio
from typing import Annotated

import msgspec
import typer

from vmafx.cli.options import HELP
from vmafx.scoring.doctor import DoctorReport, examine
from vmafx.scoring.errors import ScoringError

EXIT_CANNOT_SCORE = 3
ERRORS: tuple[type[Exception], ...] = (ScoringError,)


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check whether this machine can score, and show its ffmpeg, models, encoders and URI schemes.

    Exit codes: 0 it can, 3 it cannot.
    """
    report = asyncio.run(examine())
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        for name, value in _facts(report):
            typer.echo(f"{name:<10} {value}")
        for problem in report.wrong:
            typer.echo(f"error: {problem}", err=True)
        if not report.wrong:
            typer.echo("ok: this machine can score clips")
    if report.wrong:
        raise typer.Exit(EXIT_CANNOT_SCORE)


def _facts(report: DoctorReport) -> list[tuple[str, str]]:
    return [
        ("ffmpeg", f"{report.version or 'none'}  {report.ffmpeg}"),
        ("libvmaf", "yes" if report.libvmaf else "no"),
        *(("engine", f"{one.backend}: {one.facts.versions}") for one in report.engines if one.facts is not None),
        ("models", ", ".join(report.models) or "none"),
        ("encoders", ", ".join(report.encoders) or "none"),
        ("decoder", report.decoder),
        ("URIs", ", ".join(report.schemes)),
        ("machine", f"{report.machine}, {report.cores} cores"),
        ("sandbox", report.sandbox),
        ("temporary", f"{report.temporary}, {report.temporaryFree / (1 << 30):.1f} GiB free"),
        ("cache", report.cache),
    ]
