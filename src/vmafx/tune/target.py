"""TargetSearch: the setting of an encoder that reaches a score, searched on samples and proven on the whole source."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import msgspec

from vmafx.scoring.batch import ClipFailed
from vmafx.scoring.errors import ScoringError
from vmafx.tune.compare import (
    EncodePlan,
    OnProgress,
    TuneProgress,
    Workshop,
    encode_result,
    is_about_source,
    open_kept,
    variant_result,
)
from vmafx.tune.encoders import Variant
from vmafx.tune.frames import frame_rate, source_frames
from vmafx.tune.results import EncodeResult, TargetResult, VariantResult
from vmafx.tune.samples import LOSSLESS, SampleOptions, sample_ranges, write_samples
from vmafx.tune.search import Goal, Step, next_step
from vmafx.tune.work_folder import encode_key

MAX_WHOLE_ENCODES = 8
# Encodes that most searches take, and the least that one may still take as long as it goes on: for the progress.
USUAL_TRIES, USUAL_PROOFS, LEAST_TRIES = 4.0, 1.5, 0.25


class TargetSearch:
    """Searches the setting of each variant for one goal."""

    def __init__(self, workshop: Workshop, goal: Goal, on_progress: OnProgress) -> None:
        self.whole, self.goal, self._on_progress = workshop, goal, on_progress
        self._shares = dict[str, float]()  # of each variant

    async def run(self, variants: Sequence[Variant]) -> list[VariantResult]:
        """The result of each variant, as many at the same time as there may be encodes. Raises ScoringError."""
        self._shares = {variant.name: 0.0 for variant in variants}
        for variant in variants:
            self.whole.tools.library(variant.encoder)
        await self.whole.check()
        slots = asyncio.Semaphore(self.whole.settings.encodes)
        async with AsyncExitStack() as stack:
            samples = await self._open_samples(stack)

            async def search(variant: Variant) -> VariantResult:
                async with slots:
                    return await _VariantSearch(self, variant, samples).run()

            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(search(variant)) for variant in variants]
            except* ScoringError as failures:  # of the source
                raise failures.exceptions[0] from None
        return _with_savings([task.result() for task in tasks])

    async def _open_samples(self, stack: AsyncExitStack) -> Workshop | None:
        """A workshop for the samples of the source; None if it is short."""
        whole = self.whole
        rate = frame_rate(whole.source.clip)
        ranges = sample_ranges(whole.source.clip.packets, rate)
        if not ranges:
            return None
        frames = source_frames(whole.source, LOSSLESS.bit_depths)
        options = SampleOptions(ranges, whole.settings.threads)
        key = encode_key(whole.source.digest, frames, options.encode, whole.tools.identity(LOSSLESS), options.part)

        def report(done: int) -> None:
            self._on_progress(TuneProgress("sampling", "the source", min(done / options.frames, 1.0)))

        kept = await whole.folder.get_or_make(
            key, "mkv", lambda path: write_samples(whole.source, frames, whole.tools, options, path, report)
        )
        return whole.of_source(await stack.enter_async_context(open_kept(whole.scorer, kept, "reference")))

    def report(self, variant: Variant, encode: str, share: float) -> None:
        """`share` is of the search for this variant; it is 1 only at its end."""
        self._shares[variant.name] = max(share, self._shares[variant.name])
        shares = self._shares.values()
        finished = sum(one == 1 for one in shares)
        self._on_progress(TuneProgress("searching", encode, sum(shares) / len(shares), finished, len(shares)))


def _with_savings(variants: Sequence[VariantResult]) -> list[VariantResult]:
    """The variants with the difference to the bitrate of the first, where both have reached the score."""
    first = variants[0].found if variants and variants[0].target is not None and variants[0].target.reached else None

    def with_saving(one: VariantResult) -> VariantResult:
        if first is None or one.found is None or one.target is None or not one.target.reached:
            return one
        delta = round((one.found.bitrate / first.bitrate - 1) * 100, 3)
        return msgspec.structs.replace(one, target=msgspec.structs.replace(one.target, bitrateDelta=delta))

    return [*variants[:1], *map(with_saving, variants[1:])]


class _VariantSearch:
    """The search for one variant. Samples score higher or lower than the whole, by nearly as much at all settings."""

    def __init__(self, search: TargetSearch, variant: Variant, samples: Workshop | None) -> None:
        self._search, self._variant, self._samples = search, variant, samples
        self._goal, self._qualities = search.goal, variant.encoder.range
        self._on_samples: dict[float, float] = {}
        self._on_whole: dict[float, float] = {}
        self._encodes: list[EncodeResult] = []

    async def run(self) -> VariantResult:
        try:
            await self._search_samples()
            while not (step := self._next_on_whole()).done and len(self._on_whole) < MAX_WHOLE_ENCODES:
                self._on_whole[step.quality] = await self._try(self._search.whole, step.quality, whole=True)
        except _EncodeFailed as failure:
            self._encodes.append(failure.result)
        self._search.report(self._variant, self._variant.name, 1.0)
        result = variant_result(self._variant, self._encodes)
        return msgspec.structs.replace(result, target=self._target())

    async def _search_samples(self) -> None:
        while self._samples is not None and not (step := self._step(self._on_samples)).done:
            self._on_samples[step.quality] = await self._try(self._samples, step.quality, whole=False)

    def _step(self, scores: Mapping[float, float]) -> Step:
        return next_step(self._goal, scores, self._qualities, self._variant.encoder.typical_quality(self._goal.score))

    def _next_on_whole(self) -> Step:
        """The next setting for the whole source; done if that was tried, and so is proven."""
        step = self._step({**self._shifted_samples(), **self._on_whole})
        return Step(step.quality, done=step.quality in self._on_whole)

    def _shifted_samples(self) -> dict[float, float]:
        """Scores of the samples, moved by what the whole source differs at the settings that were tried on both."""
        both = [quality for quality in self._on_whole if quality in self._on_samples]
        shift = sum(self._on_whole[quality] - self._on_samples[quality] for quality in both) / max(len(both), 1)
        return {quality: score + shift for quality, score in self._on_samples.items()}

    async def _try(self, workshop: Workshop, quality: float, *, whole: bool) -> float:
        """The score at a setting. Raises _EncodeFailed."""
        plan, count = EncodePlan(self._variant, quality), max(workshop.source.clip.packets, 1)
        what = plan.name if whole or self._samples is None else f"{plan.name} on samples"

        def report(begun: float, frames: int) -> None:
            done = begun + min(frames / count, 1.0) / 2  # as if scoring took as long as encoding
            self._search.report(self._variant, what, self._share(done, whole=whole))

        report(0.0, 0)
        try:
            kept = await workshop.encode(plan, partial(report, 0.0))
        except ScoringError as error:
            if is_about_source(error):
                raise
            raise _EncodeFailed(encode_result(plan, error, None)) from error
        (outcome,) = await workshop.score([kept], lambda _number, frames: report(0.5, frames))
        result = encode_result(plan, kept, outcome)
        if isinstance(outcome, ClipFailed):
            raise _EncodeFailed(result)
        if whole:
            self._encodes.append(result)
        return outcome.report.result.score

    def _share(self, begun: float, *, whole: bool) -> float:
        """How far the search is, with `begun` of an encode: by the encodes that most searches take."""
        if self._samples is None:
            done, usual = len(self._on_whole) + begun, USUAL_TRIES
        else:
            cost = self._samples.source.clip.packets / max(self._search.whole.source.clip.packets, 1)
            done = len(self._on_samples) * cost + len(self._on_whole) + begun * (1.0 if whole else cost)
            usual = (len(self._on_samples) if whole else USUAL_TRIES) * cost + USUAL_PROOFS
        return done / max(usual, done + LEAST_TRIES)

    def _target(self) -> TargetResult | None:
        if not self._on_whole:
            return None
        step = self._next_on_whole()
        chosen = step.quality if step.done else _nearest(self._goal, self._on_whole)
        score, goal = self._on_whole[chosen], self._goal
        note = ""
        if goal.is_met(score):
            pass
        elif not step.done:
            note = f"the search ended early; the nearest is {score:.2f}"
        elif score < goal.score:
            note = f"no setting of {self._variant.name} reaches {goal.score:g}; the nearest is {score:.2f}"
        elif chosen >= self._qualities.worst:
            note = "no setting is worse"
        else:
            note = "the next setting is below the target"
        return TargetResult(
            score=goal.score,
            reached=score >= goal.score,
            quality=chosen,
            sampleEncodes=len(self._on_samples),
            sampleFrames=self._samples.source.clip.packets if self._samples is not None else 0,
            wholeEncodes=len(self._on_whole),
            note=note,
        )


class _EncodeFailed(Exception):
    def __init__(self, result: EncodeResult) -> None:
        super().__init__(result.error)
        self.result = result


def _nearest(goal: Goal, scores: dict[float, float]) -> float:
    """The cheapest setting that reaches the score, else the best one."""
    reaching = [quality for quality, score in scores.items() if score >= goal.score]
    return max(reaching) if reaching else min(scores)
