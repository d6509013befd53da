"""`vmafx score`: scores clips on this machine, and prints the results."""

import asyncio
import math
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from vmafx.api.hardware import BACKEND_VARIABLE, Backend
from vmafx.cli.options import HELP
from vmafx.cli.progress import ScoreProgress
from vmafx.cli.scoring_flags import SCORING, ScoringFlags, parse_size, with_scoring_flags
from vmafx.scoring.batch import WORST_FRAMES, BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.engines.find import ENGINE_VARIABLE, EngineKind, Engines
from vmafx.scoring.errors import BadInput, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import THREADS_VARIABLE, OptionSettings, ScoreOptions, Source
from vmafx.scoring.score import Scorer
from vmafx.settings import from_environ

EXIT_BELOW_THRESHOLD, EXIT_BAD_INPUT, EXIT_ENGINE = 1, 2, 3
BackendChoice = Literal["auto", Backend]
RESULTS, EXECUTION = "Results", "Execution"
THREADS_HELP = "Threads per clip (default: VMAFX_THREADS, or 0: all cores, shared by the clips scored at once)."
ERRORS: tuple[type[Exception], ...] = ()  # `score` maps each error to its own exit code


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(with_scoring_flags(score, THREADS_HELP))


def score(
    reference: Annotated[str, typer.Argument(help="Reference clip: a path or URI.", metavar="REFERENCE")],
    distorted: Annotated[list[str], typer.Argument(help="Distorted clips to score.", metavar="DISTORTED")],
    flags: ScoringFlags,
    backend: Annotated[
        BackendChoice | None,
        typer.Option(
            help="Backend to score on (default: VMAFX_BACKEND, or auto: the best engine of this machine).",
            rich_help_panel=SCORING,
        ),
    ] = None,
    engine: Annotated[
        EngineKind | None,
        typer.Option(
            help="Engine to score with: ffmpeg for libvmaf, also for its libvmaf_cuda filter, or torch for vmafx's own"
            " kernels (default: VMAFX_ENGINE, or auto: ffmpeg on the CPU, torch on GPUs).",
            rich_help_panel=SCORING,
        ),
    ] = None,
    scale_to: Annotated[
        str,
        typer.Option(
            metavar="WxH", help="Size to compare at (default: that of the reference).", rich_help_panel=SCORING
        ),
    ] = "",
    shortest: Annotated[
        bool,
        typer.Option(
            "--shortest", help="Score only the common part of clips of different length.", rich_help_panel=SCORING
        ),
    ] = False,
    conform: Annotated[
        bool,
        typer.Option(
            "--conform", help="Convert both clips to the frame rate of the reference.", rich_help_panel=SCORING
        ),
    ] = False,
    stretch: Annotated[
        bool,
        typer.Option(
            "--stretch", help="Allow different aspect ratios; the distorted clip is stretched.", rich_help_panel=SCORING
        ),
    ] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="Allow damaged clips; what decodes is scored.", rich_help_panel=SCORING)
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.", rich_help_panel=RESULTS)] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Write a report (.html, .json or .csv), or a chart of it as .svg or .png: FILE.svg of VMAF,"
            " FILE.psnr_y.svg of another feature, FILE.rate-quality.svg of bitrates; may be repeated.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    worst: Annotated[
        int,
        typer.Option(
            min=0, max=50, metavar="N", help="Number of worst frames in an HTML report.", rich_help_panel=RESULTS
        ),
    ] = WORST_FRAMES,
    fail_under: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Exit with 1 if a score is below this.", rich_help_panel=RESULTS),
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Clips to score at once (0: one per core; with --threads N, one per N cores).",
            rich_help_panel=EXECUTION,
        ),
    ] = 0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Reuse cached results.", rich_help_panel=EXECUTION)
    ] = True,
    allow_private: Annotated[
        bool,
        typer.Option("--allow-private", help="Allow URLs that lead to private addresses.", rich_help_panel=EXECUTION),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.", rich_help_panel=EXECUTION)] = False,
) -> None:
    """Score clips against a reference on this machine.

    Exit codes: 0 scored, 1 below --fail-under, 2 bad input, 3 the engine or this machine failed.
    """
    report_paths: list[Path] = []
    names = [display_name(name) for name in distorted]
    try:
        chosen = msgspec.structs.asdict(flags.options())
        report_paths, pictures = _report_plan(report or [], chosen["features"], worst)
        # Flags win over variables.
        given = {THREADS_VARIABLE: flags.threads, BACKEND_VARIABLE: backend, ENGINE_VARIABLE: engine}
        environ = {**os.environ, **{variable: str(value) for variable, value in given.items() if value is not None}}
        settled = OptionSettings.from_environ(environ)
        options = ScoreOptions(
            **chosen | {"threads": settled.threads},
            model=flags.model,
            backend=settled.backend,
            size=parse_size(scale_to, "--scale-to") if scale_to else None,
            shortest=shortest,
            conform=conform,
            stretch=stretch,
            damaged=damaged,
        )
        if fail_under is not None and not math.isfinite(fail_under):
            raise BadInput("options", f"--fail-under {fail_under} is not a finite number")
        formats = flags.formats(reference, distorted)
        reference_source, *distorted_sources = map(Source, (reference, *distorted), formats)
        policy = MediaPolicy.from_environ(os.environ)
        if allow_private:
            policy = msgspec.structs.replace(policy, private=True)
        scorer = Scorer(Engines(environ), policy, cache=ResultCache() if cache else None)
        batch = BatchScorer(scorer, options, parallel=parallel, worst=pictures)
        with ScoreProgress(names, quiet=quiet or json) as progress:
            outcomes = asyncio.run(_score(reference_source, distorted_sources, batch, progress))
    except ScoringError as error:  # concerns all clips
        typer.echo(error_line(error), err=True)
        outcomes, fail_under = [ClipFailed(error)], None
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    raise typer.Exit(_report_outcomes(outcomes, names, report_paths, json=json, threshold=fail_under))


def _report_plan(paths: list[Path], features: Sequence[str], worst: int) -> tuple[list[Path], int]:
    """The paths of the reports and the number of pictures to take. A bad path fails before clips are scored.

    So does a chart of a feature that is not among the `features` to measure.
    """
    if not paths:
        return [], 0
    from vmafx.reports import (  # noqa: PLC0415 - saves time without reports
        ReportSettings,
        needed_feature,
        resolve_path,
        shows_pictures,
    )

    settings = from_environ(ReportSettings)
    resolved = [resolve_path(path, settings) for path in paths]
    for path in resolved:
        if (needed := needed_feature(path)) and needed not in features:
            raise BadInput("options", f"the chart {path} needs values that are not measured; add --feature {needed}")
    return resolved, worst if any(map(shows_pictures, resolved)) else 0


async def _score(
    reference: Source, distorted: list[Source], batch: BatchScorer, progress: ScoreProgress
) -> list[ClipScored | ClipFailed]:
    def on_failure(number: int, error: ScoringError) -> None:
        stage = "refused" if isinstance(error, BadInput) else "failed"
        progress.fail(number, stage, error_line(error, progress.names[number] if len(progress.names) > 1 else ""))

    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await batch.score(reference, distorted, progress.update, on_failure)


def _report_outcomes(
    outcomes: list[ClipScored | ClipFailed],
    names: list[str],
    report_paths: list[Path],
    *,
    json: bool,
    threshold: float | None,
) -> int:
    """Writes the reports and prints the scores; returns the highest exit code of all clips."""
    codes, below = [0], []
    for outcome, name in zip(outcomes, names, strict=False):
        if isinstance(outcome, ClipFailed):
            codes.append(exit_code(outcome.error))  # the error was printed when the clip failed
        elif threshold is not None and outcome.report.result.score < threshold:
            below.append(f"{name} {_format_below(outcome.report.result.score, threshold)}")
    scored = [outcome for outcome in outcomes if isinstance(outcome, ClipScored)]
    codes.append(_write_reports(report_paths, scored) if scored and report_paths else 0)
    try:
        if json:
            typer.echo(scores_as_json(outcomes, names))
        elif scored:
            from vmafx.cli.score_table import print_scores  # noqa: PLC0415 - imports rich, which takes time

            print_scores([outcome.report.result for outcome in scored])
    except OSError as error:  # must not end with the exit code of a score below the threshold
        typer.echo(f"error: cannot print the result: {error.strerror}", err=True)
        return EXIT_ENGINE
    if below:
        clips = "1 clip" if len(outcomes) == 1 else f"{len(outcomes)} clips"
        typer.echo(f"VMAF below {threshold:.10g}: {', '.join(below)} ({len(below)} of {clips})", err=True)
        codes.append(EXIT_BELOW_THRESHOLD)
    return max(codes)


def _format_below(score: float, threshold: float) -> str:
    """The score with as many digits as show that it is below the threshold."""
    short = f"{score:.3f}"
    return short if float(short) < threshold else repr(score)


def _write_reports(paths: list[Path], scored: list[ClipScored]) -> int:
    """Returns the exit code."""
    from vmafx.reports import write_report  # noqa: PLC0415 - saves time without reports

    reports = [outcome.report for outcome in scored]
    pictures = {outcome.report.result.key: outcome.pictures for outcome in scored}
    try:
        for path in paths:
            write_report(path, reports, pictures)
            typer.echo(f"wrote {path}", err=True)
    except ScoringError as error:
        typer.echo(error_line(error), err=True)
        return exit_code(error)
    return 0


def error_line(error: ScoringError, name: str = "") -> str:
    """One line: what happened, and what to do."""
    remedy = _remedy(error)
    return f"error: {name + ': ' if name else ''}{' '.join(str(error).split())}{'; ' + remedy if remedy else ''}"


def _remedy(error: ScoringError) -> str:
    return error.remedy if isinstance(error, BadInput) else ""


def exit_code(error: ScoringError) -> int:
    return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_ENGINE


def scores_as_json(outcomes: Sequence[ClipScored | ClipFailed], names: Sequence[str]) -> str:
    """An object for one clip, a list for several; a failed clip has an `error` instead of a score.

    A single outcome for several names is an error that concerns all of them.
    """
    documents = [_document(outcomes[min(number, len(outcomes) - 1)], name) for number, name in enumerate(names)]
    return msgspec.json.format(
        msgspec.json.encode(documents if len(documents) > 1 else documents[0]), indent=2
    ).decode()


def _document(outcome: ClipScored | ClipFailed, name: str) -> object:
    if isinstance(outcome, ClipScored):
        return outcome.report.result
    error = {"kind": type(outcome.error).__name__, "message": str(outcome.error)}
    if remedy := _remedy(outcome.error):
        error["remedy"] = remedy
    return {"distorted": {"uri": name}, "error": error}
