"""JobWork: does what a job asks for, with vmafx.scoring and vmafx.tune. What was done before is not done again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from vmafx.api.scoring import MAX_THREADS
from vmafx.cores import usable_cores
from vmafx.mcp.arguments import CompareArguments, LadderArguments, ScoreArguments, SubmitArguments
from vmafx.mcp.job import ClipScore, JobFailure, McpJobRecord, OnWorkProgress, ScoreOutcome, WorkOutcome, WorkProgress
from vmafx.scoring.batch import BatchScorer, ClipFailed, ClipScored
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import ScoreOptions, Source, check_options
from vmafx.scoring.result import Progress
from vmafx.scoring.score import Scorer
from vmafx.tune.compare import OnProgress, TuneProgress, TuneSettings, Workshop, compare, compare_result, open_source
from vmafx.tune.config import TuneConfig
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.ladder import Ladder, LadderSettings
from vmafx.tune.search import Goal
from vmafx.tune.target import TargetSearch
from vmafx.tune.work_folder import WorkFolder

# The part of a comparison or a ladder that a stage is, as typical shares of its time.
STAGES = {
    "encoding": (0.0, 0.6),
    "scoring": (0.6, 1.0),
    "refining: encoding": (0.7, 0.85),
    "refining: scoring": (0.85, 1.0),
}
LADDER_SHARE = 0.7  # of the first encodes of a ladder

Work = ScoreArguments | CompareArguments | LadderArguments


def work_of(record: McpJobRecord) -> Work:
    """The arguments of a job."""
    match record.kind:
        case "score":
            return msgspec.json.decode(record.arguments, type=SubmitArguments)
        case "compare":
            return msgspec.json.decode(record.arguments, type=CompareArguments)
        case "ladder":
            return msgspec.json.decode(record.arguments, type=LadderArguments)


def check_work(work: Work) -> None:
    """Raises BadInput for options that no clip could have, before there is a job."""
    match work:
        case ScoreArguments():
            work.score_options(work.model, work.backend, None)
        case CompareArguments():
            _tune_config(work)
            check_options(ScoreOptions(model=work.model, pooling=work.pooling))
        case LadderArguments():
            _ladder_settings(work)
            check_options(ScoreOptions(model=work.model, pooling=work.pooling))


class JobWork:
    """Does jobs, `parallel` at the same time, which share the cores."""

    def __init__(self, scorer: Scorer, folder: WorkFolder, parallel: int) -> None:
        self._scorer, self._folder, self._parallel = scorer, folder, parallel

    async def do(self, work: Work, on_progress: OnWorkProgress) -> WorkOutcome:
        """Raises ScoringError."""
        match work:
            case ScoreArguments():
                return WorkOutcome(score=await self._score(work, on_progress))
            case CompareArguments():
                return await self._compare(work, on_progress)
            case LadderArguments():
                return await self._ladder(work, on_progress)

    async def _score(self, work: ScoreArguments, on_progress: OnWorkProgress) -> ScoreOutcome:
        threads = min(max(1, usable_cores() // self._parallel), MAX_THREADS)
        options = work.score_options(work.model, work.backend, threads)
        sources = work.distorted_sources
        progress = _ScoreProgress(len(sources), on_progress)
        batch = BatchScorer(self._scorer, options)
        outcomes = await batch.score(work.reference_source, sources, progress.report)
        if len(outcomes) == 1 and isinstance(outcomes[0], ClipFailed):
            raise outcomes[0].error
        results = [one.report.result for one in outcomes if isinstance(one, ClipScored)]
        return ScoreOutcome(
            reference=display_name(work.reference),
            model=results[0].model if results else work.model,
            pooling=work.pooling,
            width=results[0].width if results else 0,
            height=results[0].height if results else 0,
            clips=tuple(_clip_score(source, one) for source, one in zip(sources, outcomes, strict=True)),
        )

    async def _compare(self, work: CompareArguments, on_progress: OnWorkProgress) -> WorkOutcome:
        config, settings = _tune_config(work), _tune_settings(work)
        tools = await EncoderTools.find()
        variants = config.variants(tools)
        plans = config.plans(variants)
        if config.targetVmaf is None:
            async with self._workshop(work.source, tools, settings.for_encodes(len(plans))) as shop:
                return WorkOutcome(compare=await compare(shop, plans, _stage_progress(on_progress)))
        async with self._workshop(work.source, tools, settings.for_encodes(len(variants))) as shop:
            search = TargetSearch(shop, Goal(config.targetVmaf, config.tolerance), _plain_progress(on_progress))
            return WorkOutcome(compare=compare_result(shop, await search.run([one.variant for one in variants])))

    async def _ladder(self, work: LadderArguments, on_progress: OnWorkProgress) -> WorkOutcome:
        settings, tools = _ladder_settings(work), await EncoderTools.find()
        tools.library(settings.variant.encoder)
        async with self._workshop(work.source, tools, _tune_settings(work)) as shop:
            return WorkOutcome(ladder=await Ladder(shop, settings, _stage_progress(on_progress, LADDER_SHARE)).run())

    @asynccontextmanager
    async def _workshop(self, source: str, tools: EncoderTools, settings: TuneSettings) -> AsyncIterator[Workshop]:
        async with self._folder.in_use(), open_source(self._scorer, Source(source)) as opened:
            yield Workshop(opened, self._scorer, tools, self._folder, settings)


class _ScoreProgress:
    """The progress of all clips of a job as one."""

    def __init__(self, clips: int, on_progress: OnWorkProgress) -> None:
        self._shares, self._on_progress = [0.0] * clips, on_progress

    def report(self, number: int, progress: Progress) -> None:
        done = ""
        if progress.stage == "scoring" and progress.total:
            self._shares[number] = min(progress.done / progress.total, 1.0)
            done = f"{progress.done:,} of {progress.total:,} frames"
        self._on_progress(WorkProgress(progress.activity, sum(self._shares) / len(self._shares), done))


def _stage_progress(on_progress: OnWorkProgress, whole: float = 1.0) -> OnProgress:
    """Progress of stages that follow each other; the first ones are this share of the whole."""

    def report(progress: TuneProgress) -> None:
        begin, end = STAGES.get(progress.stage, (0.0, 1.0))
        share = begin + (end - begin) * progress.share
        scale = 1.0 if progress.stage.startswith("refining") else whole
        on_progress(WorkProgress(progress.stage, share * scale, _detail(progress)))

    return report


def _plain_progress(on_progress: OnWorkProgress) -> OnProgress:
    def report(progress: TuneProgress) -> None:
        on_progress(WorkProgress(progress.stage, progress.share, _detail(progress)))

    return report


def _detail(progress: TuneProgress) -> str:
    return f"{progress.encode}, {progress.finished} of {progress.total} done" if progress.total else progress.encode


def _tune_settings(work: CompareArguments | LadderArguments) -> TuneSettings:
    return TuneSettings(options=ScoreOptions(model=work.model, pooling=work.pooling))


def _tune_config(work: CompareArguments) -> TuneConfig:
    if work.targetVmaf is not None and work.qualities is not None:
        raise BadInput("options", "qualities are for comparisons, and a search for targetVmaf tries qualities itself")
    for name in work.encoders:
        Variant.parse(name)
    return TuneConfig(
        encoders=work.encoders, qualities=work.qualities, targetVmaf=work.targetVmaf, tolerance=work.tolerance
    )


def _ladder_settings(work: LadderArguments) -> LadderSettings:
    if work.maxRate is not None and work.minRate is not None and work.maxRate < work.minRate:
        raise BadInput("options", "maxRate is below minRate")
    variant = Variant.parse(work.encoder)
    for quality in work.qualities or ():
        variant.encoder.check_quality(quality)
    return LadderSettings(
        variant=variant,
        heights=work.heights,
        qualities=work.qualities or (),
        top=work.top,
        spacing=work.spacing,
        lowest=work.lowest,
        rungs=work.rungs,
        max_rate=work.maxRate,
        min_rate=work.minRate,
        key_frames=work.keyFrames,
    )


def _clip_score(source: Source, outcome: ClipScored | ClipFailed) -> ClipScore:
    if isinstance(outcome, ClipFailed):
        failure = JobFailure.of(outcome.error)
        return ClipScore(distorted=display_name(source.uri), error=failure.text)
    result = outcome.report.result
    vmaf = result.features["vmaf"]
    return ClipScore(
        distorted=result.distorted.uri,
        score=result.score,
        lowest=vmaf.min,
        p5=vmaf.percentiles["p5"],
        frames=result.frames,
        bitrate=result.distorted.bitrate,
        features={name: round(summary.mean, 6) for name, summary in result.features.items()},
        notes=result.notes,
        key=result.key,
    )
