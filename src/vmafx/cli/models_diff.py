"""`vmafx models diff`: scores the same clips with two models."""

import asyncio
import math
import os
import signal
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.api.scoring import MAX_THREADS
from vmafx.cli.progress import ScoreProgress
from vmafx.cli.score import error_line, exit_code
from vmafx.cli.tables import as_json, cell
from vmafx.scoring.batch import BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import OptionSettings, ScoreOptions, Source
from vmafx.scoring.score import Scorer


class ClipDifference(msgspec.Struct, frozen=True):
    """The scores of one clip with both models."""

    distorted: str
    a: float
    b: float
    difference: float  # b - a


class ModelDifference(msgspec.Struct, frozen=True):
    """The scores of all clips that both models could score, and the mean of their differences."""

    a: str
    b: str
    clips: list[ClipDifference]
    meanDifference: float
    meanAbsoluteDifference: float


def diff(
    model_a: Annotated[str, typer.Argument(metavar="A", help="First model: whatever --model of `vmafx score` takes.")],
    model_b: Annotated[str, typer.Argument(metavar="B", help="Second model.")],
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="Reference clip: a path or URI.")],
    distorted: Annotated[list[str], typer.Argument(metavar="DISTORTED", help="Distorted clips to score.")],
    subsample: Annotated[int, typer.Option(min=1, metavar="N", help="Score every Nth frame only.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_THREADS, metavar="N", help="Threads per clip (default: VMAFX_THREADS, or 0)."),
    ] = None,
    output: Annotated[Literal["table", "json"], typer.Option("--output", "-o", help="Output format.")] = "table",
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse cached results.")] = True,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Allow URLs that lead to private addresses.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Score the same clips with two models on this machine, and print the difference.

    A model is a built-in one, one in VMAFX_MODEL_DIR, or a path or URI, such as the MODEL of `vmafx models`.

    Exit codes: 0 scored, 2 bad input, 3 the engine or this machine failed.
    """
    names = [display_name(name) for name in distorted]
    policy = MediaPolicy.from_environ(os.environ)
    if allow_private:
        policy = msgspec.structs.replace(policy, private=True)
    if threads is None:
        threads = OptionSettings.from_environ(os.environ).threads
    options = ScoreOptions(model=model_a, subsample=subsample, threads=threads)
    try:
        with ScoreProgress(names, quiet=quiet or output == "json") as progress:
            scoring = _score_both(reference, distorted, (model_a, model_b), options, policy, progress, cache=cache)
            found, errors = asyncio.run(scoring)
    except ScoringError as error:  # concerns all clips
        typer.echo(error_line(error), err=True)
        raise typer.Exit(exit_code(error)) from None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    if found:
        result = _result(model_a, model_b, found)
        if output == "json":
            typer.echo(as_json(result))
        else:
            print_difference(result, Console())
    raise typer.Exit(max(map(exit_code, errors), default=0))


async def _score_both(
    reference: str,
    distorted: list[str],
    models: tuple[str, str],
    options: ScoreOptions,
    policy: MediaPolicy,
    progress: ScoreProgress,
    *,
    cache: bool,
) -> tuple[list[ClipDifference], list[ScoringError]]:
    """The clips that both models scored, and the errors of the others, which are printed as they happen."""
    task, errors = asyncio.current_task(), list[ScoringError]()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def on_failure(number: int, error: ScoringError) -> None:
        errors.append(error)
        progress.fail(number, "failed", error_line(error, progress.names[number]))

    scorer = Scorer(policy=policy, cache=ResultCache() if cache else None)
    outcomes: list[list[ClipScored | ClipFailed]] = []
    for model in models:
        batch = BatchScorer(scorer, msgspec.structs.replace(options, model=model))
        outcomes.append(await batch.score(Source(reference), [*map(Source, distorted)], progress.update, on_failure))
    scores = [
        (name, one.report.result.score, other.report.result.score)
        for name, one, other in zip(progress.names, *outcomes, strict=True)
        if isinstance(one, ClipScored) and isinstance(other, ClipScored)
    ]
    return [ClipDifference(name, one, other, other - one) for name, one, other in scores], errors


def _result(model_a: str, model_b: str, clips: list[ClipDifference]) -> ModelDifference:
    differences = [clip.difference for clip in clips]
    mean = math.fsum(differences) / len(clips)
    absolute = math.fsum(map(abs, differences)) / len(clips)
    return ModelDifference(model_a, model_b, clips, mean, absolute)


def print_difference(result: ModelDifference, console: Console) -> None:
    """A row for each clip, and the means."""
    table = Table(show_footer=True)
    count = len(result.clips)
    mean_a, mean_b = (math.fsum(getattr(clip, name) for clip in result.clips) / count for name in ("a", "b"))
    columns = {
        "distorted": "mean",
        "A": f"{mean_a:.3f}",
        "B": f"{mean_b:.3f}",
        "B - A": f"{result.meanDifference:+.3f}",
    }
    for head, foot in columns.items():
        table.add_column(head, footer=foot, justify="left" if head == "distorted" else "right")
    for clip in result.clips:
        table.add_row(Text(cell(clip.distorted)), f"{clip.a:.3f}", f"{clip.b:.3f}", f"{clip.difference:+.3f}")
    console.print(Text(f"A: {cell(result.a)}\nB: {cell(result.b)}"), soft_wrap=True)
    console.print(table)
    console.print(Text(f"mean absolute difference {result.meanAbsoluteDifference:.3f}"))
