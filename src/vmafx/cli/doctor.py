"""`vmafx doctor`: whether this machine can score, and with what."""

import asyncio
from typing import Annotated

import msgspec
import typer

from vmafx.cli.options import HELP
from vmafx.scoring.doctor import DoctorReport, examine

CANNOT_SCORE = 3
ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Try what this machine can score with: ffmpeg, libvmaf, models, encoders, URIs. Exit code 3 if it cannot score."""
    found = asyncio.run(examine())
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        for name, value in _lines(found):
            typer.echo(f"{name:<10} {value}")
        for wrong in found.wrong:
            typer.echo(f"error: {wrong}", err=True)
        if not found.wrong:
            typer.echo("this machine can score clips")
    if found.wrong:
        raise typer.Exit(CANNOT_SCORE)


def _lines(found: DoctorReport) -> list[tuple[str, str]]:
    return [
        ("ffmpeg", f"{found.version or 'none'}  {found.ffmpeg}"),
        ("libvmaf", "yes" if found.libvmaf else "no"),
        ("models", ", ".join(found.models) or "none"),
        ("encoders", ", ".join(found.encoders) or "none"),
        ("prober", found.prober),
        ("URIs", ", ".join(found.schemes)),
        ("machine", f"{found.machine}, {found.cores} cores"),
        ("temporary", f"{found.temporary}, {found.temporaryFree / (1 << 30):.1f} GiB free"),
        ("cache", found.cache),
    ]
