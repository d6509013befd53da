"""Scores one attempt, reports progress, and returns its result."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmafx.api.job import FeatureSummary
from vmafx.jobs.attempt import AttemptResult, AttemptSpec, Fault
from vmafx.logs import log
from vmafx.reports import render_report, shows_pictures
from vmafx.scoring.batch import WORST_FRAMES, BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.errors import BadInput, EngineFailure, ScoringError
from vmafx.scoring.media.access import deliver_report
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import FeatureStatistics, Progress, Report
from vmafx.scoring.score import ProgressListener, Scorer

LOG_INTERVAL, WRITE_INTERVAL = 10.0, 1.0  # seconds


@contextmanager
def progress_listener(path: str) -> Iterator[ProgressListener]:
    """A listener for as long as the score takes. A file that cannot be written is no reason not to score."""
    with ExitStack() as stack:
        file: BinaryIO | None = None
        if path:
            try:
                file = stack.enter_context(Path(path).open("ab", buffering=0))
            except OSError as error:
                log.warn("progress cannot be written", file=path, error=error.strerror)
        yield _listener(file)


def _listener(file: BinaryIO | None) -> ProgressListener:
    logged = time.monotonic()
    written = 0.0

    def hear(progress: Progress) -> None:
        nonlocal logged, written
        now = time.monotonic()
        if now - logged >= LOG_INTERVAL:
            logged = now
            log.info(progress.stage, done=progress.done, total=progress.total, fps=round(progress.fps, 2))
        last = progress.stage == "scoring" and progress.done == progress.total  # tells how fast all of it was
        if file is not None and (last or now - written >= WRITE_INTERVAL):
            written = now
            with suppress(OSError):
                file.write(msgspec.json.encode(progress) + b"\n")

    return hear


FIRST = ("vmaf", "psnr_y", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")  # kept longest where room is short


async def score_attempt(
    work: AttemptSpec, options: ScoreOptions, scorer: Scorer, policy: MediaPolicy, listener: ProgressListener
) -> AttemptResult:
    """Every way it can end is an answer."""
    try:
        scored = await _score(work, options, scorer, listener)
        report = scored.report
        delivered = None
        if work.output:
            delivered = await deliver_report(
                work.output, render_report(shown(work.output), report, scored.pictures), policy
            )
    except ScoringError as error:
        return failed_result(work.id, error)
    return AttemptResult(work.id, report.result.score, report.result.frames, _metrics(report), delivered)


async def _score(work: AttemptSpec, options: ScoreOptions, scorer: Scorer, listener: ProgressListener) -> ClipScored:
    """With the pictures that `vmafx score` would put into such a report; without any of them it is still a score."""
    worst = WORST_FRAMES if work.output and shows_pictures(shown(work.output)) else 0
    batch = BatchScorer(scorer, options, parallel=1, worst=worst)
    reference = Source(work.reference, work.referenceFormat)
    distorted = Source(work.distorted, work.distortedFormat)
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


def _metrics(report: Report) -> dict[str, FeatureSummary]:
    features = report.result.features
    ranked = sorted(features, key=lambda name: (name not in FIRST, name))
    return {name: _summary(features[name]) for name in ranked}


def _summary(one: FeatureStatistics) -> FeatureSummary:
    return FeatureSummary(one.mean, one.harmonicMean, one.min, one.max)
