"""`vmafx crd`: the CRDs, the roles and the reference pages, written from the declarations or compared with them."""

from pathlib import Path
from typing import Annotated

import typer

from vmafx.agent.options import AgentSettings
from vmafx.api import KINDS, reference
from vmafx.api.reasons import REASONS
from vmafx.cli.help import HELP
from vmafx.controller import rbac
from vmafx.controller.options import ControllerSettings
from vmafx.devcluster.variables import DevSettings
from vmafx.operator import manifests
from vmafx.operator.options import SETTINGS
from vmafx.scoring.engine import EngineSettings
from vmafx.scoring.media.policy import Policy
from vmafx.settings import Setting, declared, named_group, page
from vmafx.worker.options import WorkerSettings

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
        typer.echo(manifests.crds_as_one())
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


def files() -> dict[Path, str]:
    """Everything that is generated from declarations."""
    sections = {
        "Scoring": (*declared(EngineSettings).values(), *declared(Policy).values()),
        "The worker": declared(WorkerSettings).values(),
        "The operator": declared(named_group(SETTINGS)).values(),
        "The controller": declared(ControllerSettings).values(),
        "The agent": declared(AgentSettings).values(),
        "Everywhere": (Setting("Kubeconfig files, merged as kubectl does.", variable="KUBECONFIG"),),
        "`vmafx dev`": declared(DevSettings).values(),
    }
    pages = {Path("docs/api.md"): reference.page(KINDS, REASONS), Path("docs/environment.md"): page(sections)}
    return {**manifests.files(), **rbac.files(), **pages}


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
