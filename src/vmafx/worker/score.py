"""Scores one attempt: reports progress, delivers the report and returns the result."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from vmafx.api.job import FeatureSummary
from vmafx.jobs.attempt import AttemptResult, AttemptSpec, Fault
from vmafx.logs import log
from vmafx.reports import render_report, shows_pictures
from vmafx.scoring.batch import WORST_FRAMES, BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.errors import BadInput, EngineFailure, ScoringError
from vmafx.scoring.media.access import check_output, deliver_report
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import FeatureStatistics, Progress, Report
from vmafx.scoring.score import ProgressListener, Scorer
from vmafx.training.samples import SampleBatch
from vmafx.worker.samples import samples_of

LOG_INTERVAL, WRITE_INTERVAL = 10.0, 1.0  # seconds
MAIN_FEATURES = ("vmaf", "psnr_y", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")  # kept if the result is too long


class ScoredAttempt(NamedTuple):
    """The result of an attempt, and its samples if they are wanted and there are any."""

    result: AttemptResult
    samples: SampleBatch | None = None


async def score_attempt(
    attempt: AttemptSpec,
    options: ScoreOptions,
    scorer: Scorer,
    policy: MediaPolicy,
    listener: ProgressListener,
    *,
    with_samples: bool,
) -> ScoredAttempt:
    """Never raises ScoringError: a failure is a result too."""
    try:
        if attempt.output:
            await check_output(attempt.output, policy)
        scored = await _score(attempt, options, scorer, listener)
        report_uri = None
        if attempt.output:
            content = render_report(display_name(attempt.output), scored.report, scored.pictures)
            report_uri = await deliver_report(attempt.output, content, policy)
    except ScoringError as error:
        return ScoredAttempt(failed_result(attempt.id, error))
    scores = scored.report.result
    result = AttemptResult(attempt.id, scores.score, scores.frames, _summaries(scored.report), report_uri)
    return ScoredAttempt(result, samples_of(scored.report) if with_samples else None)


async def _score(attempt: AttemptSpec, options: ScoreOptions, scorer: Scorer, listener: ProgressListener) -> ClipScored:
    """Takes the same pictures as `vmafx score`, if the report shows any."""
    worst = WORST_FRAMES if attempt.output and shows_pictures(display_name(attempt.output)) else 0
    batch = BatchScorer(scorer, options, parallel=1, worst=worst)
    reference = Source(attempt.reference, attempt.referenceFormat)
    distorted = Source(attempt.distorted, attempt.distortedFormat)
    (outcome,) = await batch.score(reference, [distorted], lambda _, progress: listener(progress))
    if isinstance(outcome, ClipFailed):
        raise outcome.error
    if outcome.pictures_error is not None:
        log.warn("report has no pictures", error=str(outcome.pictures_error))
    return outcome


def failed_result(attempt: str, error: ScoringError) -> AttemptResult:
    fault: Fault = "NodeFault"
    if isinstance(error, BadInput):
        fault = "BadInput"
    elif isinstance(error, EngineFailure):
        fault = "EngineFailure"
    return AttemptResult(attempt, fault=fault, message=str(error))


def _summaries(report: Report) -> dict[str, FeatureSummary]:
    """The features' summaries, the main ones first."""
    features = report.result.features
    ranked = sorted(features, key=lambda name: (name not in MAIN_FEATURES, name))
    return {name: _summary(features[name]) for name in ranked}


def _summary(feature: FeatureStatistics) -> FeatureSummary:
    return FeatureSummary(feature.mean, feature.harmonicMean, feature.min, feature.max)


@contextmanager
def progress_listener(path: str) -> Iterator[ProgressListener]:
    """A listener that logs progress, and writes it to the file at `path` unless that is empty or not writable."""
    with ExitStack() as stack:
        file: BinaryIO | None = None
        if path:
            try:
                file = stack.enter_context(Path(path).open("ab", buffering=0))
            except OSError as error:
                log.warn("could not open progress file", file=path, error=error.strerror)
        yield _listener(file)


def _listener(file: BinaryIO | None) -> ProgressListener:
    logged = time.monotonic()
    written = 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal logged, written
        now = time.monotonic()
        if now - logged >= LOG_INTERVAL:
            logged = now
            log.info(progress.activity, done=progress.done, total=progress.total, fps=round(progress.fps, 2))
        last = progress.stage == "scoring" and progress.done == progress.total  # its fps is that of the whole clip
        if file is not None and (last or now - written >= WRITE_INTERVAL):
            written = now
            with suppress(OSError):
                file.write(msgspec.json.encode(progress) + b"\n")

    return on_progress
