"""One piece of work, from clips to an answer."""

from vmafx.api.job import FeatureSummary
from vmafx.jobs.work import Answer, Fault, Work
from vmafx.logs import log
from vmafx.reports import render, shows_pictures
from vmafx.scoring.batch import WORST_FRAMES, Batch, Failed, Scored
from vmafx.scoring.errors import BadInput, EngineFailure, ScoringError
from vmafx.scoring.media.deliver import deliver
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import Options, Source
from vmafx.scoring.result import Report, Summary
from vmafx.scoring.score import Listener, Scorer

FIRST = ("vmaf", "psnr_y", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")  # kept longest where room is short


async def answer(work: Work, options: Options, scorer: Scorer, policy: Policy, listener: Listener) -> Answer:
    """Every way it can end is an answer."""
    try:
        scored = await _score(work, options, scorer, listener)
        report = scored.report
        delivered = None
        if work.output:
            delivered = await deliver(work.output, render(shown(work.output), report, scored.pictures), policy)
    except ScoringError as error:
        return failed(work.id, error)
    return Answer(work.id, report.result.score, report.result.frames, _metrics(report), delivered)


async def _score(work: Work, options: Options, scorer: Scorer, listener: Listener) -> Scored:
    """With the pictures that `vmafx score` would put into such a report; without any of them it is still a score."""
    worst = WORST_FRAMES if work.output and shows_pictures(shown(work.output)) else 0
    batch = Batch(scorer, options, parallel=1, worst=worst)
    reference = Source(work.reference, work.referenceFormat)
    distorted = Source(work.distorted, work.distortedFormat)
    (outcome,) = await batch.score(reference, [distorted], lambda _, progress: listener(progress))
    if isinstance(outcome, Failed):
        raise outcome.error
    if outcome.pictures_error is not None:
        log.warn("report has no pictures", error=str(outcome.pictures_error))
    return outcome


def failed(attempt: str, error: ScoringError) -> Answer:
    fault: Fault = "NodeFault"
    if isinstance(error, BadInput):
        fault = "BadInput"
    elif isinstance(error, EngineFailure):
        fault = "EngineFailure"
    return Answer(attempt, fault=fault, message=str(error))


def _metrics(report: Report) -> dict[str, FeatureSummary]:
    features = report.result.features
    ranked = sorted(features, key=lambda name: (name not in FIRST, name))
    return {name: _summary(features[name]) for name in ranked}


def _summary(one: Summary) -> FeatureSummary:
    return FeatureSummary(one.mean, one.harmonicMean, one.min, one.max)
