"""Ladder: the sizes and qualities to stream a source in, as its own content asks for them.

The source is encoded in several sizes and qualities. The best of these, whatever their size, lie on the convex hull;
the rungs are taken from it at scores that viewers can tell apart. Where there is no encode with such a score yet, it is
made in the sizes of the two neighbours on the hull, and so is one just below the maximum bitrate if that limits the
best rung. All clips are compared at the size of the source. With `shots`, each rung is then made again of shots that
have settings of their own (shot_ladder.py).
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from vmafx.scoring.clip import Clip
from vmafx.scoring.errors import BadInput
from vmafx.tune.compare import EncodePlan, OnProgress, Trials, TuneProgress, Workshop, source_facts
from vmafx.tune.encoders import Variant, without_hdr
from vmafx.tune.frames import frame_rate, source_notes
from vmafx.tune.hull import HullPoint, convex_hull, height_of, wished_scores
from vmafx.tune.results import LadderPoint, LadderResult
from vmafx.tune.scenes import Shot, find_shots
from vmafx.tune.shot_ladder import ShotLadder, ShotVariant

HEIGHTS = (2160, 1440, 1080, 720, 540, 360, 240)
MIN_HEIGHT = 64
MIN_RATE_STEP = 1.15  # rungs whose rates are closer help no player
NEAR_SCORE = 0.5  # points of VMAF: an encode with nearly the wished score need not be made again
NEAR_LIMIT, LIMIT_ROUNDS = 0.95, 2  # share of the maximum bitrate that is near enough, and how often one is tried
HULL_TOLERANCE = 0.5  # points of VMAF below the hull that nobody sees
SHOT_DROP = 6.0  # points of VMAF: about one just noticeable difference


class LadderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a ladder should be like. `qualities` default to those of the encoder; rates are in bits per second."""

    variant: Variant
    heights: tuple[int, ...] = ()  # those of HEIGHTS that the source has, and its own
    qualities: tuple[float, ...] = ()
    top: float = 95.0  # the score of the best rung: more is seldom seen
    spacing: float = 6.0  # points between rungs: about one just noticeable difference
    lowest: float = 40.0
    rungs: int = 8  # at most
    max_rate: float | None = None
    min_rate: float | None = None
    key_frames: float = 2.0  # seconds between key frames, the same in all rungs
    shots: bool = False  # find the settings of each shot
    shot_drop: float = SHOT_DROP  # points that a shot may score less than its rung

    def __post_init__(self) -> None:
        """Raises BadInput for limits that no rung can be within."""
        if self.min_rate is not None and self.max_rate is not None and self.min_rate > self.max_rate:
            raise BadInput("options", "the minimum bitrate of rungs is above the maximum")
        if self.lowest > self.top:
            raise BadInput("options", f"the lowest score {self.lowest:g} is above that of the best rung, {self.top:g}")


def ladder_sizes(clip: Clip, heights: Sequence[int]) -> list[tuple[int, int]]:
    """The sizes of the encodes, from the largest: no larger than the clip, even, in its shape. Raises BadInput."""
    chosen = heights or [height for height in (clip.height - clip.height % 2, *HEIGHTS) if height <= clip.height]
    for height in chosen:
        if not MIN_HEIGHT <= height <= clip.height or height % 2:
            raise BadInput(
                "options",
                f"{height} is no height for this ladder; it must be even, {MIN_HEIGHT} or more, and at most the "
                f"{clip.height} of the source",
            )
    found = [(2 * round(clip.width * height / clip.height / 2), height) for height in sorted(set(chosen), reverse=True)]
    return [size for size in found if size[0] >= MIN_HEIGHT]


class Ladder:
    """Makes the ladder of one source."""

    def __init__(self, workshop: Workshop, settings: LadderSettings, on_progress: OnProgress) -> None:
        self._workshop, self._settings, self._on_progress = workshop, settings, on_progress
        self._gop = max(1, round(settings.key_frames * frame_rate(workshop.source.clip)))
        self._points: list[LadderPoint] = []

    async def run(self) -> LadderResult:
        """Raises ScoringError; encodes that fail are in the result."""
        settings = self._settings
        sizes = ladder_sizes(self._workshop.source.clip, settings.heights)
        qualities = settings.qualities or settings.variant.encoder.qualities
        await self._try([(size, quality) for size in sizes for quality in qualities], "")
        for _ in range(LIMIT_ROUNDS):
            if at_limit := self._settings_at_limit():
                await self._try(at_limit, "refining: ")
        if between := self._settings_between():
            await self._try(between, "refining: ")
        rungs = self._rungs()
        notes = source_notes(self._workshop.source.clip, without_hdr([settings.variant.encoder.name]))
        shots: tuple[Shot, ...] = ()
        if rungs and settings.shots:
            shots = await self._find_shots()
            rungs = await self._by_shots(rungs, shots, notes)
        encodes = [point.encode for point in self._points]
        if not rungs and any(one.score is not None for one in encodes):
            notes.append("no encode is within the limits of this ladder; change its rates, heights or scores")
        elif rungs and (best := rungs[0].encode.score) is not None and best < settings.top - settings.spacing / 2:
            notes.append(f"no encode within the limits comes near {settings.top:g}; the best rung has {best:.2f}")
        return LadderResult(
            source=source_facts(self._workshop.source, encodes),
            model=self._workshop.settings.options.model,
            pooling=self._workshop.settings.options.pooling,
            encoder=settings.variant.encoder.name,
            preset=settings.variant.preset,
            options=dict(settings.variant.extras),
            codec=settings.variant.encoder.codec,
            keyFrames=self._gop,
            rungs=tuple(rungs),
            encodes=tuple(sorted(self._points, key=lambda point: (-point.height, point.encode.bitrate))),
            shots=shots,
            notes=tuple(notes),
        )

    async def _find_shots(self) -> tuple[Shot, ...]:
        source = self._workshop.source
        total = max(source.clip.packets, 1)

        def report(frames: int) -> None:
            self._on_progress(TuneProgress("finding", "shots", min(frames / total, 1.0)))

        return await find_shots(source, frame_rate(source.clip), self._workshop.settings.threads, report)

    async def _by_shots(self, rungs: list[LadderPoint], shots: Sequence[Shot], notes: list[str]) -> list[LadderPoint]:
        """The rungs with a setting for each shot, without those that fail or exceed the limits on rate."""
        if len(shots) == 1:
            notes.append("the source has no cuts; each rung has one setting for all of it")
            return rungs
        settings = self._settings
        encoder = ShotVariant(settings.variant, self._gop)
        search = ShotLadder(self._workshop, encoder, shots, settings.shot_drop, self._on_progress)
        found = await search.run(rungs, self._points)
        self._points += [rung for rung in found if rung.encode.error]
        low, high = self._limits
        notes += [
            f"by shots, the rung of {rung.height}p for {rung.target:.2f} has {rung.encode.bitrate / 1000:,.0f} kbit/s, "
            "which is not within the limits; it is left out"
            for rung in found
            if rung.shots and not low <= rung.encode.bitrate <= high
        ]
        return [rung for rung in found if not rung.encode.error and low <= rung.encode.bitrate <= high]

    async def _try(self, wanted: Sequence[tuple[tuple[int, int], float]], stage: str) -> None:
        own = self._workshop.source.clip.width, self._workshop.source.clip.height
        plans = [
            EncodePlan(self._settings.variant, quality, size if size != own else None, self._gop)
            for size, quality in wanted
        ]

        def report(progress: TuneProgress) -> None:
            self._on_progress(msgspec.structs.replace(progress, stage=f"{stage}{progress.stage}"))

        results = await Trials(self._workshop, report).run(plans)
        self._points += [LadderPoint(*size, encode) for (size, _), encode in zip(wanted, results, strict=True)]

    @property
    def _limits(self) -> tuple[float, float]:
        return self._settings.min_rate or 0.0, self._settings.max_rate or float("inf")

    def _usable(self) -> list[tuple[LadderPoint, float]]:
        """The points within the limits on rate, with their score."""
        low, high = self._limits
        return [
            (point, point.encode.score)
            for point in self._points
            if point.encode.score is not None and low <= point.encode.bitrate <= high
        ]

    def _hull(self) -> tuple[list[LadderPoint], list[HullPoint]]:
        usable = self._usable()
        return [point for point, _ in usable], convex_hull((point.encode.bitrate, score) for point, score in usable)

    def _scores(self) -> list[float]:
        settings = self._settings
        best = max((score for _, score in self._usable()), default=settings.top)
        return wished_scores(min(settings.top, best), settings.spacing, settings.lowest, settings.rungs)

    def _settings_at_limit(self) -> list[tuple[tuple[int, int], float]]:
        """Settings with nearly the maximum bitrate, if the best encode is limited by it and is far below it."""
        limit, best = self._settings.max_rate, max((score for _, score in self._usable()), default=0.0)
        if limit is None or best >= self._settings.top or self._settings.shots:  # by shots, files have other rates
            return []
        points = [(point, point.encode.score) for point in self._points if point.encode.score is not None]
        hull = convex_hull((point.encode.bitrate, score) for point, score in points)
        below, above = ([one for one in hull if (one.rate <= limit) == within] for within in (True, False))
        if not below or not above or below[-1].rate >= NEAR_LIMIT * limit:
            return []
        neighbours = points[below[-1].number][0], points[above[0].number][0]
        wanted = math.log(limit * (1 + NEAR_LIMIT) / 2)
        return self._untried(neighbours, lambda point: math.log(point.encode.bitrate), wanted)

    def _settings_between(self) -> list[tuple[tuple[int, int], float]]:
        """Settings for the wished scores that lie between two points of the hull, in the sizes of both."""
        points, hull = self._hull()
        wanted = list[tuple[tuple[int, int], float]]()
        for score in self._scores():
            below = [one for one in hull if one.quality <= score]
            above = [one for one in hull if one.quality > score]
            if below and above and min(score - below[-1].quality, above[0].quality - score) > NEAR_SCORE:
                neighbours = points[below[-1].number], points[above[0].number]
                wanted += self._untried(neighbours, lambda point: point.encode.score or 0.0, score)
        return list(dict.fromkeys(wanted))

    def _untried(
        self, neighbours: Sequence[LadderPoint], value_of: Callable[[LadderPoint], float], wanted: float
    ) -> list[tuple[tuple[int, int], float]]:
        """In the sizes of these points, the settings for a score or rate, where that is between two that were tried."""
        found = []
        for size in dict.fromkeys((one.width, one.height) for one in neighbours):
            same = [one for one in self._points if (one.width, one.height) == size and one.encode.score is not None]
            curve = sorted((value_of(one), one.encode.quality) for one in same)
            values, qualities = [value for value, _ in curve], [quality for _, quality in curve]
            if not values[0] < wanted < values[-1]:
                continue
            quality = self._settings.variant.encoder.range.nearest(float(np.interp(wanted, values, qualities)))
            if quality not in qualities:
                found.append((size, quality))
        return found

    def _rungs(self) -> list[LadderPoint]:
        """The encode nearest to each score, from the top, of those at the hull; none too near to the one above."""
        points, hull = self._hull()
        best = [
            (point, point.encode.score)
            for point in points
            if point.encode.score is not None
            and point.encode.score >= height_of(hull, point.encode.bitrate) - HULL_TOLERANCE
        ]
        rungs: list[LadderPoint] = []
        for wished in self._scores() if best else ():
            nearest, _ = min(best, key=lambda one: abs(one[1] - wished))
            if not rungs or rungs[-1].encode.bitrate >= nearest.encode.bitrate * MIN_RATE_STEP:
                rungs.append(nearest)
        return rungs
