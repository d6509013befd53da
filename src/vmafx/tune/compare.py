"""Encodes a source with several encoders and qualities, scores each encode, and compares them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from io import FileIO
from typing import Protocol, TypeGuard

import msgspec

from vmafx.api.scoring import MAX_THREADS
from vmafx.cores import usable_cores
from vmafx.scoring.batch import ClipFailed, ClipScored, divide_cores
from vmafx.scoring.decoder.messages import RAW_VIDEO_REMEDY
from vmafx.scoring.errors import BadInput, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import Progress, Report
from vmafx.scoring.score import Scorer
from vmafx.tune.bd_rate import Point, bd_quality, bd_rate
from vmafx.tune.encoders import Variant, without_hdr
from vmafx.tune.encoding import EncodeOptions, EncoderTools, encode
from vmafx.tune.frames import frame_rate, source_frames, source_notes
from vmafx.tune.results import CompareResult, EncodeResult, SourceFacts, VariantResult
from vmafx.tune.work_folder import KeptEncode, WorkFolder, encode_key

CORES_PER_ENCODE = 4  # more threads make most encoders less efficient


class EncodePlan(msgspec.Struct, frozen=True):
    """An encode to make: in the size of the source unless `size` is given; with `gop`, a key frame every so many."""

    variant: Variant
    quality: float
    size: tuple[int, int] | None = None
    gop: int = 0

    @property
    def name(self) -> str:
        height = f" {self.size[1]}p" if self.size is not None else ""
        return f"{self.variant.name} {self.quality:g}{height}"


class TuneProgress(msgspec.Struct, frozen=True):
    """How far the work is. `share` is from 0 to 1; `encode` is what has just advanced."""

    stage: str  # such as encoding or scoring
    encode: str
    share: float
    finished: int = 0
    total: int = 0


OnProgress = Callable[[TuneProgress], None]


class TuneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to work: the options of scores, and how many encodes are made at the same time (0: by the cores)."""

    options: ScoreOptions = ScoreOptions()
    parallel: int = 0

    @property
    def encodes(self) -> int:
        return self.parallel or max(1, usable_cores() // CORES_PER_ENCODE)

    def for_encodes(self, count: int) -> "TuneSettings":
        """The same, where no more than `count` encodes are made at the same time: each gets more cores."""
        return msgspec.structs.replace(self, parallel=min(self.encodes, max(count, 1)))

    @property
    def threads(self) -> int:
        """Of each encode."""
        return min(max(1, usable_cores() // self.encodes), MAX_THREADS)


class RemoteScoring(Protocol):
    """Scores encodes of one source elsewhere, such as in a cluster."""

    async def check(self) -> None:
        """Raises ScoringError if encodes could not be scored."""

    def begin(self, encode: KeptEncode) -> None:
        """Start to score an encode, while others are being made; `score` waits for it."""

    async def score(
        self, encodes: Sequence[KeptEncode], on_scored: Callable[[int, int], None]
    ) -> list[ClipScored | ClipFailed]:
        """The outcome of each encode. `on_scored` gets a number and its frames."""


class Workshop:
    """Encodes and scores one source. What was encoded or scored before is not done again.

    Without `remote`, this machine scores.
    """

    def __init__(
        self,
        source: ProbedClip,
        scorer: Scorer,
        tools: EncoderTools,
        folder: WorkFolder,
        settings: TuneSettings,
        remote: RemoteScoring | None = None,
    ) -> None:
        self.source, self.settings, self.tools, self.folder = source, settings, tools, folder
        self.scorer, self._remote = scorer, remote
        self.slots, self._scoring = asyncio.Semaphore(settings.encodes), asyncio.Lock()

    def of_source(self, source: ProbedClip) -> "Workshop":
        """The same for another source, whose encodes this machine scores."""
        return Workshop(source, self.scorer, self.tools, self.folder, self.settings)

    async def check(self) -> None:
        """Raises ScoringError if encodes could not be scored, which should be known before they are made."""
        await self.scorer.check_options(self.settings.options)
        if self._remote is not None:
            await self._remote.check()

    async def encode(self, plan: EncodePlan, on_frames: Callable[[int], None]) -> KeptEncode:
        """Raises ScoringError."""
        frames = source_frames(self.source, plan.variant.encoder.bit_depths, plan.size)
        options = EncodeOptions.of(plan.variant, plan.quality, plan.gop, self.settings.threads, frames.hdr)
        key = encode_key(self.source.digest, frames, options, self.tools.identity(plan.variant.encoder))
        async with self.slots:
            return await self.folder.get_or_make(
                key,
                plan.variant.encoder.container,
                lambda path: encode(self.source, frames, self.tools, options, path, on_frames),
            )

    def begin_score(self, encode: KeptEncode) -> None:
        """Let an encode be scored while others are made, if that is not done here, where they would share the cores."""
        if self._remote is not None:
            self._remote.begin(encode)

    async def score(
        self, encodes: Sequence[KeptEncode], on_scored: Callable[[int, int], None]
    ) -> list[ClipScored | ClipFailed]:
        """Score encodes together, so that the source is decoded once. `on_scored` gets a number and its frames."""
        if self._remote is not None:
            return await self._remote.score(encodes, on_scored)
        together, threads = divide_cores(usable_cores(), len(encodes), 0, self.settings.options.threads)
        options = msgspec.structs.replace(self.settings.options, threads=threads)
        outcomes: list[ClipScored | ClipFailed] = []
        async with self._scoring:  # which takes all cores
            for first in range(0, len(encodes), together):
                numbers = range(first, min(first + together, len(encodes)))
                listeners = [partial(_report_frames, on_scored, number) for number in numbers]
                outcomes += await self._score_together([encodes[number] for number in numbers], options, listeners)
        return outcomes

    async def _score_together(
        self, encodes: Sequence[KeptEncode], options: ScoreOptions, listeners: Sequence[Callable[[Progress], None]]
    ) -> list[ClipScored | ClipFailed]:
        async with AsyncExitStack() as stack:
            probed = [await self._probe(stack, kept) for kept in encodes]
            good = [(one, on) for one, on in zip(probed, listeners, strict=True) if isinstance(one, ProbedClip)]
            reports = await self.scorer.compare_all(
                self.source, [clip for clip, _ in good], options, [listener for _, listener in good]
            )
        found = iter(reports)
        outcomes = [next(found) if isinstance(one, ProbedClip) else one for one in probed]
        for one in outcomes:
            if is_about_source(one):
                raise one
        return [ClipScored(one) if isinstance(one, Report) else ClipFailed(one) for one in outcomes]

    async def _probe(self, stack: AsyncExitStack, kept: KeptEncode) -> ProbedClip | ScoringError:
        try:
            return await stack.enter_async_context(open_kept(self.scorer, kept, "distorted", outputs=1))
        except ScoringError as error:
            return error


@asynccontextmanager
async def open_kept(scorer: Scorer, kept: KeptEncode, part: InputPart, outputs: int = 0) -> AsyncIterator[ProbedClip]:
    """Open and probe an encode of ours, which no policy for clips concerns. Raises ScoringError."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(FileIO(kept.path))
        except OSError as error:
            raise NodeFault(f"the encode {kept.path} cannot be read: {error.strerror}") from error
        media = OpenedMedia(file.fileno(), kept.facts.bytes, str(kept.path))
        async with scorer.open_file(Source(str(kept.path)), part, media) as opened:
            yield await scorer.probe(opened, outputs)


@asynccontextmanager
async def open_source(scorer: Scorer, source: Source) -> AsyncIterator[ProbedClip]:
    """Open and probe the source. Raises BadInput if it cannot be encoded, or encodes could not be scored."""
    try:
        async with scorer.open(source, "reference") as opened:
            probed = await scorer.probe(opened)
            scorer.check_pair(probed, probed, ScoreOptions())
            yield probed
    except BadInput as error:
        if error.part == "reference":  # its remedies are flags of `vmafx score`
            remedy = "put raw video into a container file first" if error.remedy == RAW_VIDEO_REMEDY else ""
            raise BadInput("reference", error.why, remedy) from error
        raise


def is_about_source(outcome: object) -> TypeGuard[BadInput]:
    """Whether this is an error that every encode would have."""
    return isinstance(outcome, BadInput) and outcome.part == "reference"


def _report_frames(on_scored: Callable[[int, int], None], number: int, progress: Progress) -> None:
    if progress.stage == "scoring":
        on_scored(number, progress.done)


class Trials:
    """Makes and scores encodes. What fails is in the results."""

    def __init__(self, workshop: Workshop, on_progress: OnProgress) -> None:
        self._workshop, self._on_progress = workshop, on_progress

    async def run(self, plans: Sequence[EncodePlan]) -> list[EncodeResult]:
        """A result for each plan, in order. Raises ScoringError if the source or an option is bad."""
        for plan in plans:
            plan.variant.encoder.check_quality(plan.quality)
            self._workshop.tools.library(plan.variant.encoder)
        await self._workshop.check()
        kept = await self._encode_all(plans)
        made = [(index, one) for index, one in enumerate(kept) if isinstance(one, KeptEncode)]
        outcomes: dict[int, ClipScored | ClipFailed | None] = dict.fromkeys(range(len(plans)))
        if made:
            scored = await self._score_all([plans[index] for index, _ in made], [one for _, one in made])
            outcomes |= dict(zip((index for index, _ in made), scored, strict=True))
        return [
            encode_result(plan, one, outcomes[index]) for index, (plan, one) in enumerate(zip(plans, kept, strict=True))
        ]

    async def _encode_all(self, plans: Sequence[EncodePlan]) -> list[KeptEncode | ScoringError]:
        count = self._workshop.source.clip.packets or 1
        frames, finished = dict.fromkeys(range(len(plans)), 0), 0

        def report(index: int, done: int) -> None:
            frames[index] = min(done, count)
            share = sum(frames.values()) / count / len(plans)
            self._on_progress(TuneProgress("encoding", plans[index].name, share, finished, len(plans)))

        async def make(index: int) -> KeptEncode | ScoringError:
            nonlocal finished
            try:
                kept = await self._workshop.encode(plans[index], lambda done: report(index, done))
            except ScoringError as error:
                if is_about_source(error):
                    raise  # no other encode would succeed
                return error
            finally:
                finished += 1
                report(index, count)
            self._workshop.begin_score(kept)
            return kept

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(make(index)) for index in range(len(plans))]
        except* ScoringError as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _score_all(
        self, plans: Sequence[EncodePlan], encodes: Sequence[KeptEncode]
    ) -> list[ClipScored | ClipFailed]:
        total = sum(one.facts.frames for one in encodes)
        frames = dict.fromkeys(range(len(encodes)), 0)

        def report(index: int, done: int) -> None:
            frames[index] = max(frames[index], min(done, encodes[index].facts.frames))
            finished = sum(done == one.facts.frames for done, one in zip(frames.values(), encodes, strict=True))
            share = sum(frames.values()) / total
            self._on_progress(TuneProgress("scoring", plans[index].name, share, finished, len(plans)))

        return await self._workshop.score(encodes, report)


async def compare(workshop: Workshop, plans: Sequence[EncodePlan], on_progress: OnProgress) -> CompareResult:
    """All variants at their qualities. Raises ScoringError as Trials does."""
    results = await Trials(workshop, on_progress).run(plans)
    pairs = list(zip(plans, results, strict=True))
    variants = {plan.variant.name: plan.variant for plan in plans}
    grouped = [
        variant_result(variant, [result for plan, result in pairs if plan.variant.name == name])
        for name, variant in variants.items()
    ]
    return compare_result(workshop, with_deltas(grouped))


def encode_result(
    plan: EncodePlan, kept: KeptEncode | ScoringError, outcome: ClipScored | ClipFailed | None
) -> EncodeResult:
    if isinstance(kept, ScoringError):
        return EncodeResult(quality=plan.quality, error=str(kept))
    facts = kept.facts
    result = EncodeResult(
        quality=plan.quality,
        bytes=facts.bytes,
        bitrate=round(facts.bitrate, 1),
        frames=facts.frames,
        seconds=round(facts.seconds, 3),
        fps=round(facts.speed, 2),
        file=str(kept.path),
        resumed=kept.resumed,
    )
    if isinstance(outcome, ClipScored):
        vmaf = outcome.report.result.features["vmaf"]
        return msgspec.structs.replace(
            result, score=outcome.report.result.score, lowest=vmaf.min, p5=vmaf.percentiles["p5"]
        )
    error = str(outcome.error) if outcome is not None else "it was not scored"
    return msgspec.structs.replace(result, error=error)


def variant_result(variant: Variant, encodes: Sequence[EncodeResult]) -> VariantResult:
    encoder = variant.encoder
    return VariantResult(
        name=variant.name,
        encoder=encoder.name,
        preset=variant.preset,
        codec=encoder.codec,
        encodes=tuple(encodes),
        options=dict(variant.extras),
    )


def with_deltas(variants: Sequence[VariantResult]) -> tuple[VariantResult, ...]:
    """The variants with their deltas against the first one."""
    if not variants:
        return ()
    first, *others = variants
    anchor = _curve(first)
    return (
        first,
        *(
            msgspec.structs.replace(
                one, bdRate=_rounded(bd_rate(anchor, _curve(one))), bdScore=_rounded(bd_quality(anchor, _curve(one)))
            )
            for one in others
        ),
    )


def compare_result(workshop: Workshop, variants: Sequence[VariantResult]) -> CompareResult:
    settings = workshop.settings
    return CompareResult(
        source=source_facts(workshop.source, [encode for variant in variants for encode in variant.encodes]),
        model=settings.options.model,
        pooling=settings.options.pooling,
        parallel=settings.encodes,
        variants=tuple(variants),
        notes=tuple(source_notes(workshop.source.clip, without_hdr(one.encoder for one in variants))),
    )


def source_facts(source: ProbedClip, encodes: Sequence[EncodeResult]) -> SourceFacts:
    """The source, with the number of frames that were encoded."""
    clip = source.clip
    return SourceFacts(
        uri=source.opened.display_name,
        digest=f"sha256:{source.digest}",
        width=clip.width,
        height=clip.height,
        frames=max((one.frames for one in encodes), default=0),
        frameRate=round(float(frame_rate(clip)), 3),
    )


def _curve(variant: VariantResult) -> list[Point]:
    return [(one.bitrate, one.score) for one in variant.scored if one.score is not None]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
