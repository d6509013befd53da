"""`vmafx score`: what a person types, and what they see."""

import asyncio
import math
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.cli.options import HELP
from vmafx.cli.progress import ScoreProgress
from vmafx.cli.scoring_flags import SCORING, ScoringFlags, size_of, with_scoring_flags
from vmafx.reports import ReportSettings, resolve_path, shows_pictures, write_report
from vmafx.scoring import engine
from vmafx.scoring.batch import WORST_FRAMES, BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.errors import BadInput, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import OptionSettings, ScoreOptions, Source
from vmafx.scoring.result import FeatureStatistics, ScoreResult
from vmafx.scoring.score import Scorer
from vmafx.settings import from_environ

EXIT_BELOW_FLOOR, EXIT_BAD_INPUT, EXIT_ENGINE = 1, 2, 3
RESULTS, RUNNING = "Results", "Running"


ERRORS: tuple[type[Exception], ...] = ()  # all are told by their own exit codes


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(with_scoring_flags(score))


class Display(msgspec.Struct, frozen=True):
    """What is shown while clips are scored."""

    bars: ScoreProgress
    names: list[str]

    def failed(self, number: int, error: ScoringError) -> None:
        stage = "refused" if isinstance(error, BadInput) else "failed"
        self.bars.fail(number, stage, _error(error, self.names[number] if len(self.names) > 1 else ""))


class ActiveRun(msgspec.Struct, frozen=True):
    cache: bool
    parallel: int
    pictures: int


def score(
    reference: Annotated[str, typer.Argument(help="The pristine clip: a path or URI.", metavar="REFERENCE")],
    distorted: Annotated[list[str], typer.Argument(help="The clips to judge.", metavar="DISTORTED")],
    flags: ScoringFlags,
    scale_to: Annotated[
        str,
        typer.Option(metavar="WxH", help="Compare both at this size, not at the reference's.", rich_help_panel=SCORING),
    ] = "",
    shortest: Annotated[
        bool,
        typer.Option("--shortest", help="Clips of different length: the common part.", rich_help_panel=SCORING),
    ] = False,
    conform: Annotated[
        bool, typer.Option("--conform", help="Bring both to the reference's frame rate.", rich_help_panel=SCORING)
    ] = False,
    stretch: Annotated[
        bool, typer.Option("--stretch", help="Compare clips of different shapes.", rich_help_panel=SCORING)
    ] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Score damaged clips as they decode.", rich_help_panel=SCORING)
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=RESULTS)] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write FILE.html, .json or .csv; may be repeated.", rich_help_panel=RESULTS),
    ] = None,
    worst: Annotated[
        int, typer.Option(min=0, max=50, help="Worst frames to show in an HTML report.", rich_help_panel=RESULTS)
    ] = WORST_FRAMES,
    fail_under: Annotated[
        float | None, typer.Option(help="Exit with 1 if a score is below this.", rich_help_panel=RESULTS)
    ] = None,
    parallel: Annotated[
        int, typer.Option(min=0, help="Clips to score at once; 0 for one a core.", rich_help_panel=RUNNING)
    ] = 0,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Reuse results.", rich_help_panel=RUNNING)] = True,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Fetch from private addresses too.", rich_help_panel=RUNNING)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=RUNNING)] = False,
) -> None:
    """Score clips against a reference.

    Exit codes: 0 scored, 1 below --fail-under, 2 bad input, 3 the engine or this machine failed.
    """
    reports = report or []
    names = [shown(name) for name in distorted]
    try:
        where = from_environ(ReportSettings)
        reports = [resolve_path(path, where) for path in reports]  # before the clips are scored, not after
        given = msgspec.structs.asdict(flags.options())
        if flags.threads is None:
            given["threads"] = OptionSettings.from_environ(os.environ).threads
        options = ScoreOptions(
            **given,
            model=flags.model,
            size=size_of(scale_to, "--scale-to") if scale_to else None,
            shortest=shortest,
            conform=conform,
            stretch=stretch,
            damaged=damaged,
        )
        floor = _floor(fail_under)
        formats = flags.formats(reference, distorted)
        first, *others = map(Source, (reference, *distorted), formats)
        policy = MediaPolicy.from_environ(os.environ)
        if allow_private:
            policy = msgspec.structs.replace(policy, private=True)
        pictures = worst if any(map(shows_pictures, reports)) else 0
        running = ActiveRun(cache, parallel, pictures)
        with ScoreProgress(names, quiet=quiet or json) as bars:
            display = Display(bars, names)
            outcomes = asyncio.run(_run(first, others, options, policy, display, running))
    except ScoringError as error:  # it concerns all of them
        typer.echo(_error(error), err=True)
        outcomes, floor = [ClipFailed(error)], None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    raise typer.Exit(_tell(outcomes, names, reports, json=json, floor=floor))


def _tell(
    outcomes: list[ClipScored | ClipFailed], names: list[str], reports: list[Path], *, json: bool, floor: float | None
) -> int:
    """Print and write what came of it; the exit code is that of the gravest."""
    codes, below = [0], []
    for outcome, name in zip(outcomes, names, strict=False):
        if isinstance(outcome, ClipFailed):
            codes.append(_code(outcome.error))  # it was told when it failed
        elif floor is not None and outcome.report.result.score < floor:
            below.append(f"{name} {_told_below(outcome.report.result.score, floor)}")
    scored = [outcome for outcome in outcomes if isinstance(outcome, ClipScored)]
    codes.append(_write(reports, scored) if scored else 0)
    try:
        if json:
            typer.echo(scores_as_json(outcomes, names))
        elif scored:
            print_scores([one.report.result for one in scored])
    except OSError as error:  # left to others, it would end with the code of a score below the floor
        typer.echo(f"error: the result cannot be printed: {error.strerror}", err=True)
        return EXIT_ENGINE
    if below:
        typer.echo(
            f"{len(below)} of {len(outcomes)} {'is' if len(below) == 1 else 'are'} below "
            f"{floor:.10g}: {', '.join(below)}",
            err=True,
        )
        codes.append(EXIT_BELOW_FLOOR)
    return max(codes)


def _told_below(score: float, floor: float) -> str:
    """In as many digits as it takes to see that it is below."""
    short = f"{score:.3f}"
    return short if float(short) < floor else repr(score)


def _write(reports: list[Path], scored: list[ClipScored]) -> int:
    try:
        for path in reports:
            write_report(path, [one.report for one in scored], {one.report.result.key: one.pictures for one in scored})
            typer.echo(f"wrote {path}", err=True)
    except ScoringError as error:
        typer.echo(_error(error), err=True)
        return _code(error)
    return 0


def _floor(text: float | None) -> float | None:
    if text is not None and not math.isfinite(text):
        raise BadInput("options", f"--fail-under {text} is no number to compare with")
    return text


async def _run(
    reference: Source,
    distorted: list[Source],
    options: ScoreOptions,
    policy: MediaPolicy,
    display: Display,
    running: ActiveRun,
) -> list[ClipScored | ClipFailed]:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    scorer = Scorer(await engine.find_engine(), policy, cache=ResultCache() if running.cache else None)
    batch = BatchScorer(scorer, options, parallel=running.parallel, worst=running.pictures)
    return await batch.score(reference, distorted, display.bars.hear, display.failed)


def _error(error: ScoringError, name: str = "") -> str:
    """One line: what happened, and what can be done about it."""
    remedy = f"; {error.remedy}" if isinstance(error, BadInput) and error.remedy else ""
    return f"error: {name + ': ' if name else ''}{' '.join(str(error).split())}{remedy}"


def _code(error: ScoringError) -> int:
    return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_ENGINE


COLUMNS = {"mean": 0, "harmonic": 84, "min": 36, "p5": 47, "median": 58, "p95": 69, "max": 75}  # from which width on
SHOWN = ("vmaf", "psnr_y", "psnr_cb", "psnr_cr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")


def scores_as_json(outcomes: Sequence[ClipScored | ClipFailed], names: Sequence[str]) -> str:
    """One object for one clip, a list for several; what failed has an `error` in place of a score."""
    told = [_told(outcomes[min(number, len(outcomes) - 1)], name) for number, name in enumerate(names)]
    return msgspec.json.format(msgspec.json.encode(told if len(told) > 1 else told[0]), indent=2).decode()


def _told(outcome: ClipScored | ClipFailed, name: str) -> object:
    if isinstance(outcome, ClipScored):
        return outcome.report.result
    return {"distorted": {"uri": name}, "error": {"kind": type(outcome.error).__name__, "message": str(outcome.error)}}


def print_scores(results: Sequence[ScoreResult]) -> None:
    console = Console()
    for result in results:
        console.print(_table(result, console.width))
        for note in result.notes:
            console.print(Text(f"note: {note}", style="yellow"))
        again = ", known from before" if result.cached else f" at {result.fps:.1f} fps"
        how = "the mean" if result.pooling == "mean" else result.pooling
        frames = "1 frame" if result.frames == 1 else f"{result.frames:,} frames"
        console.print(
            Text(f"VMAF {result.score:.3f}", style="bold"), Text(f"({how} of {frames}{again}; {result.model})")
        )
    if len(results) > 1:
        console.print(_overview(results))


def _table(result: ScoreResult, width: int) -> Table:
    """As many columns as there is room for: half a number is worse than none."""
    table = Table(title=Text(result.distorted.uri), title_justify="left")
    heads = [head for head in COLUMNS if width >= COLUMNS[head]]
    table.add_column("measure", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for name in (name for name in SHOWN if name in result.features):
        row = _row(result.features[name])
        table.add_row(name, *(f"{row[head]:.4f}" if abs(row[head]) < 2 else f"{row[head]:.3f}" for head in heads))
    return table


def _row(one: FeatureStatistics) -> dict[str, float]:
    steps = {"p5": one.percentiles["p5"], "median": one.percentiles["p50"], "p95": one.percentiles["p95"]}
    return {"mean": one.mean, "harmonic": one.harmonicMean, "min": one.min, "max": one.max, **steps}


def _overview(results: Sequence[ScoreResult]) -> Table:
    table = Table(title="best first", title_justify="left")
    table.add_column("distorted")
    table.add_column("VMAF", justify="right")
    table.add_column("min", justify="right")
    for result in sorted(results, key=lambda one: -one.score):
        table.add_row(Text(result.distorted.uri), f"{result.score:.3f}", f"{result.features['vmaf'].min:.3f}")
    return table
