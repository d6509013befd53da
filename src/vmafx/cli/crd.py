"""`vmafx crd`: the CRDs, the roles and the reference pages, written from the declarations or compared with them."""

from pathlib import Path
from typing import Annotated

import typer

from vmafx.cli.options import HELP
from vmafx.generate.files import crds_as_one, files

ERRORS: tuple[type[Exception], ...] = ()


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(crd)


def crd(
    directory: Annotated[
        Path, typer.Option("--dir", help="The project's folder; files are written to their places below it.")
    ] = Path(),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file differs from what would be written.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--print", help="Print the CRDs, for `vmafx crd --print | kubectl apply -f -`.")
    ] = False,
) -> None:
    """Write what is generated from declarations: the CRDs, the roles, docs/api.md and docs/environment.md."""
    if show:
        typer.echo(crds_as_one())
        return
    wanted = {directory / path: content for path, content in files().items()}
    different = [path for path, content in wanted.items() if _read(path) != content]
    if check:
        for path in different:
            typer.echo(f"{path} differs from what `vmafx crd` writes", err=True)
        if different:
            typer.echo("run `vmafx crd` and commit the result", err=True)
            raise typer.Exit(1)
        typer.echo(f"{len(wanted)} files are as they should be")
        return
    for path in different:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        except OSError as error:
            typer.echo(f"error: cannot write {path}: {error.strerror}", err=True)
            raise typer.Exit(1) from error
        typer.echo(f"wrote {path}")
    if not different:
        typer.echo(f"{len(wanted)} files are as they should be")


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
