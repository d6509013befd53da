"""One piece of work, from clips to an answer."""

from vmafx.api.job import FeatureSummary
from vmafx.jobs.work import Answer, Fault, Work
from vmafx.reports import render
from vmafx.scoring.errors import BadInput, EngineFailure, ScoringError
from vmafx.scoring.media.deliver import deliver
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import Options, Source
from vmafx.scoring.result import Report, Summary
from vmafx.scoring.score import Listener, Scorer

FIRST = ("vmaf", "psnr_y", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi")  # kept longest where room is short


async def answer(work: Work, scorer: Scorer, policy: Policy, listener: Listener) -> Answer:
    """Every way it can end is an answer."""
    try:
        report = await scorer.score(
            Source(work.reference, work.referenceFormat),
            Source(work.distorted, work.distortedFormat),
            Options.of(work),
            listener,
        )
        delivered = await deliver(work.output, render(shown(work.output), report), policy) if work.output else None
    except ScoringError as error:
        return failed(work.id, error)
    return Answer(work.id, report.result.score, report.result.frames, _metrics(report), delivered)


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
