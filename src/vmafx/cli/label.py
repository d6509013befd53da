"""`vmafx label`: sets the scores that people gave on jobs."""

import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from vmafx.cli import cluster
from vmafx.cli.options import HELP
from vmafx.cli.terminal import can_redraw
from vmafx.fleet.errors import BadScore, FleetError
from vmafx.fleet.human_scores import JobScore, check_jobs, parse_score, read_scores, set_scores
from vmafx.fleet.reader import FleetReader
from vmafx.kube import Client
from vmafx.kube.errors import KubeError

EXIT_USAGE = 2
MAX_FILE_BYTES = 64 << 20
ERRORS = cluster.ERRORS


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(label)


def label(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")] = "",
    score: Annotated[str, typer.Argument(metavar="SCORE", help="Score from 0 to 100.")] = "",
    file: Annotated[
        str,
        typer.Option(
            "--file", "-f", metavar="FILE", help="CSV file with the columns job and score; - for standard input."
        ),
    ] = "",
    namespace: cluster.NamespaceOption = "",
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Set the score that people gave the distorted clip of a job, or of many jobs.

    Trainings learn more from it than from the score of a model. With --file, all lines are checked before the first
    job is changed.

    Exit codes: 0 set; 2 bad input; 1 any other failure.
    """
    if bool(file) == bool(job) or bool(job) != bool(score):
        raise typer.BadParameter("give either JOB and SCORE, or --file")
    try:
        scores = _read(file) if file else [JobScore(job, parse_score(score))]

        async def work(client: Client, where: str) -> None:
            reader = FleetReader(client, where)
            await check_jobs(reader, scores)
            await _set(reader, scores)
            typer.echo(_summary(scores, where))
            with suppress(FleetError, KubeError):  # the scores are set even if the user may not read trainings
                typer.echo(_next(len(await reader.trainings()), where), err=True)

        cluster.run_with_client(work, kubeconfig, context, namespace)
    except BadScore as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


def _read(file: str) -> list[JobScore]:
    name = "standard input" if file == "-" else file
    try:
        content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if file == "-" else _content(Path(file))
    except OSError as error:
        raise BadScore(f"{name} cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise BadScore(f"{name} is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError as error:
        raise BadScore(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error
    return read_scores(io.StringIO(text), name)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


async def _set(reader: FleetReader, scores: list[JobScore]) -> None:
    shown = len(scores) > 1 and can_redraw(sys.stderr)
    bar = Progress(
        TextColumn("setting scores"), BarColumn(), MofNCompleteColumn(),
        console=Console(stderr=True), transient=True, disable=not shown,
    )  # fmt: skip
    with bar:
        task, done = bar.add_task("", total=len(scores)), 0

        def advance(_score: JobScore) -> None:
            nonlocal done
            done += 1
            bar.advance(task)

        try:
            await set_scores(reader, scores, advance)
        except BaseException:
            if len(scores) > 1:
                typer.echo(f"{done:,} of {len(scores):,} scores are set; run the command again", err=True)
            raise


def _summary(scores: list[JobScore], namespace: str) -> str:
    if len(scores) == 1:
        return f"set the human score of job {scores[0].job} to {scores[0].score:g}"
    return f"set the human scores of {len(scores):,} jobs in namespace {namespace}"


def _next(trainings: int, namespace: str) -> str:
    """What happens next."""
    if not trainings:
        return f"namespace {namespace} has no training that could learn from it yet; see docs/training.md"
    which = f"{trainings:,} training{'s' if trainings > 1 else ''} in namespace {namespace}"
    return f"the operator will send it to {which}; follow it with: vmafx train status NAME -n {namespace}"
