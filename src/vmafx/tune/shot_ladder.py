"""ShotLadder: for each rung of a ladder and each shot, the setting with which the shot reaches its target.

The targets of a rung are such that all of it has its score with the fewest bits (shot_targets.py). All rungs are
searched in rounds. In a round, the shots are encoded that have a new setting, the shots of each rung are
joined to a file, and all files are scored as wholes. The values of their frames say what each shot has reached. So the
score, the bitrate and the lowest frame of a rung are always those of a file that is there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from vmafx.scoring.batch import ClipFailed, ClipScored
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.pooling import pool
from vmafx.scoring.result import Report
from vmafx.tasks import in_thread
from vmafx.tune.compare import EncodePlan, OnProgress, TuneProgress, Workshop, encode_result, is_about_source
from vmafx.tune.encoders import Variant
from vmafx.tune.results import EncodeResult, LadderPoint, ShotEncode
from vmafx.tune.scenes import Shot
from vmafx.tune.search import Goal, QualityRange, next_step
from vmafx.tune.shot_targets import ShotPoint, shot_targets
from vmafx.tune.shots import Packet, ShotEncoder, ShotPlan, packets_of
from vmafx.tune.work_folder import KeptEncode

MAX_ROUNDS = 8
REACH = 0.25  # of the encoder's range: how far the setting of a shot may be from that of the rung
MIN_STEP = 0.5  # of a setting: finer ones take more rounds than they save bits
Settings = tuple[float, ...]  # one for each shot


class ShotVariant(NamedTuple):
    """An encoder, and the frames from one key frame to the next."""

    variant: Variant
    gop: int


class ShotScore(NamedTuple):
    score: float
    lowest: float  # of a frame


class Measured(NamedTuple):
    """A file of joined shots, and what each shot has in it."""

    encode: EncodeResult
    shots: Sequence[ShotScore]


class ShotLadder:
    """Encodes the rungs of one ladder by shots. The rungs have been encoded as wholes before.

    A shot may score less than its rung by `drop`. If frames are not pooled by their mean, targets would not say what
    the rung has: all shots then have that of the rung.
    """

    def __init__(
        self, workshop: Workshop, encoder: ShotVariant, shots: Sequence[Shot], drop: float, on_progress: OnProgress
    ) -> None:
        self._workshop, self._shots, self._on_progress = workshop, shots, on_progress
        self._variant, self._gop = encoder
        self._drop = drop if workshop.settings.options.pooling == "mean" else 0.0

    async def run(self, rungs: Sequence[LadderPoint], encodes: Sequence[LadderPoint]) -> list[LadderPoint]:
        """The rungs by shots, in order; one that failed has an error. `encodes` are all encodes of the whole source.

        Raises ScoringError if the source is bad.
        """
        searches = list[RungSearch]()
        for size, same_size in groupby(rungs, lambda rung: (rung.width, rung.height)):
            curves = await self._curves(size, encodes)
            encoder = ShotEncoder(self._workshop, self._variant, size, self._gop)
            qualities = self._variant.encoder.range
            frames = [shot.frames for shot in self._shots]
            for rung in same_size:
                targets = shot_targets(curves, frames, rung.encode.score or 0.0, self._drop)
                searches.append(RungSearch(rung, targets, encoder, qualities, curves))
        for number in range(1, MAX_ROUNDS + 1):
            last = number == MAX_ROUNDS
            pending = [one for one in searches if not one.failure and one.is_pending(last=last)]
            if not pending:
                break
            await self._encode(pending, number)
            await self._score([one for one in pending if not one.failure], number)
        return [await one.result(self._shots) for one in searches]

    async def _curves(self, size: tuple[int, int], encodes: Sequence[LadderPoint]) -> list[list[ShotPoint]]:
        """For each shot, what it has in the encodes of the whole source in one size."""
        same_size = [one.encode for one in encodes if (one.width, one.height) == size and one.encode.score is not None]
        plans = [EncodePlan(self._variant, one.quality, size, self._gop) for one in same_size]
        kept = [await self._workshop.encode(plan, lambda _: None) for plan in plans]  # all of them are in the folder
        outcomes = await self._workshop.score(kept, lambda *_: None)
        curves = [list[ShotPoint]() for _ in self._shots]
        for plan, one, outcome in zip(plans, kept, outcomes, strict=True):
            if isinstance(outcome, ClipScored):
                packets = await in_thread(packets_of, one.path)
                for curve, shot, found in zip(curves, self._shots, self._scores(outcome.report), strict=True):
                    bits = 8 * sum(packet.size for packet in packets[shot.first : shot.end])
                    curve.append(ShotPoint(bits, found.score, plan.quality))
        return curves

    def _scores(self, report: Report) -> list[ShotScore]:
        return shot_scores(report, self._shots, self._workshop.settings.options.pooling)

    async def _encode(self, searches: Sequence["RungSearch"], number: int) -> None:
        total = sum(shot.frames for shot in self._shots) * len(searches)
        done = dict.fromkeys(range(len(searches)), 0)

        def report(index: int, frames: int) -> None:
            done[index] = frames
            share = min(sum(done.values()) / total, 1.0)
            finished = sum(one.kept is not None for one in searches)
            stage = f"round {number}: encoding shots"
            self._on_progress(TuneProgress(stage, searches[index].name, share, finished, len(searches)))

        try:
            async with asyncio.TaskGroup() as group:
                for index, one in enumerate(searches):
                    group.create_task(one.encode(self._shots, partial(report, index)))
        except* ScoringError as failures:  # of the source
            raise failures.exceptions[0] from None

    async def _score(self, searches: Sequence["RungSearch"], number: int) -> None:
        total = sum(shot.frames for shot in self._shots) * len(searches)
        done = dict.fromkeys(range(len(searches)), 0)

        def report(index: int, frames: int) -> None:
            done[index] = frames
            share = min(sum(done.values()) / total, 1.0)
            self._on_progress(TuneProgress(f"round {number}: scoring", searches[index].name, share))

        kept = [one.kept for one in searches if one.kept is not None]
        if not kept:
            return
        for one, outcome in zip(searches, await self._workshop.score(kept, report), strict=True):
            if isinstance(outcome, ClipFailed):
                one.failure = f"the joined shots: {outcome.error}"
            elif one.kept is not None:
                one.note(Measured(encode_result(one.plan, one.kept, outcome), self._scores(outcome.report)))


def shot_scores(report: Report, shots: Sequence[Shot], pooling: str) -> list[ShotScore]:
    frames = [report.values["vmaf"][shot.first : shot.end] for shot in shots]
    return [ShotScore(pool(values, pooling), min(values)) for values in frames]


class RungSearch:
    """The settings of the shots of one rung, each searched on its own."""

    def __init__(
        self,
        rung: LadderPoint,
        targets: Sequence[float],
        encoder: ShotEncoder,
        qualities: QualityRange,
        curves: Sequence[Sequence[ShotPoint]],
    ) -> None:
        self._rung, self._encoder = rung, encoder
        self._goals = [Goal(target) for target in targets]
        self._range = near(qualities, rung.encode.quality)
        self._starts = [
            likely_setting(curve, goal.aim, rung.encode.quality)
            for curve, goal in zip(curves, self._goals, strict=True)
        ]
        self._tried: list[dict[float, float]] = [{} for _ in targets]
        self.wanted: Settings = ()  # in this round; what was found, once nothing is pending
        self._measured: dict[Settings, Measured] = {}
        self.kept: KeptEncode | None = None  # the file of this round
        self.failure = ""

    @property
    def plan(self) -> EncodePlan:
        """The encode of the whole source that the rung was."""
        return EncodePlan(self._encoder.variant, self._rung.encode.quality)

    @property
    def name(self) -> str:
        return f"{self._rung.height}p {self._rung.encode.quality:g}"

    def is_pending(self, *, last: bool) -> bool:
        """Whether there are settings to try, or those that were found are not proven as one file."""
        steps = [
            (goal, tried, next_step(goal, tried, self._range, start))
            for goal, tried, start in zip(self._goals, self._tried, self._starts, strict=True)
        ]
        self.wanted = tuple(
            _best(goal, tried) if last and not step.done else step.quality for goal, tried, step in steps
        )
        self.kept = None
        return self.wanted not in self._measured

    async def encode(self, shots: Sequence[Shot], on_frames: Callable[[int], None]) -> None:
        """Encode the shots with the settings that are wanted, and join them."""
        plans = [
            ShotPlan(number, shot, quality)
            for number, (shot, quality) in enumerate(zip(shots, self.wanted, strict=True), 1)
        ]
        try:
            self.kept = await self._encoder.join(await self._encoder.encode(plans, on_frames))
        except ScoringError as error:
            if is_about_source(error):
                raise
            self.failure = str(error)

    def note(self, measured: Measured) -> None:
        """What the file of this round has."""
        self._measured[self.wanted] = measured
        for tried, quality, shot in zip(self._tried, self.wanted, measured.shots, strict=True):
            tried[quality] = shot.score

    async def result(self, shots: Sequence[Shot]) -> LadderPoint:
        """The rung with the file that was found, and what each shot has of it."""
        measured = self._measured.get(self.wanted)
        if self.failure or measured is None:
            return self._failed(self.failure)
        packets = await in_thread(packets_of, Path(measured.encode.file))
        if not all(packets[shot.first].is_key for shot in shots):
            return self._failed("the joined shots do not each begin with a key frame")
        parts = zip(shots, self._goals, self.wanted, measured.shots, self._tried, strict=True)
        found = tuple(
            ShotEncode(
                target=round(goal.score, 3),
                quality=quality,
                bitrate=_bitrate(packets[shot.first : shot.end], self._encoder.rate),
                score=has.score,
                lowest=has.lowest,
                reached=has.score >= goal.score,
                tried=len(tried),
            )
            for shot, goal, quality, has, tried in parts
        )
        return msgspec.structs.replace(self._rung, encode=measured.encode, target=self._rung.encode.score, shots=found)

    def _failed(self, why: str) -> LadderPoint:
        return msgspec.structs.replace(self._rung, encode=EncodeResult(quality=self.plan.quality, error=why))


def _best(goal: Goal, tried: Mapping[float, float]) -> float:
    """The cheapest setting that reaches the goal, else the best one."""
    return max((one for one, score in tried.items() if score >= goal.score), default=min(tried))


def _bitrate(packets: Sequence[Packet], rate: float) -> float:
    return round(sum(one.size for one in packets) * 8 * rate / len(packets), 1)


def near(qualities: QualityRange, quality: float) -> QualityRange:
    """The settings around one. A shot that no setting makes good enough must not take the bits of all others."""
    reach = REACH * (qualities.worst - qualities.best)
    coarse = msgspec.structs.replace(qualities, step=max(qualities.step, MIN_STEP))
    return msgspec.structs.replace(coarse, best=coarse.nearest(quality - reach), worst=coarse.nearest(quality + reach))


def likely_setting(curve: Sequence[ShotPoint], score: float, default: float) -> float:
    """The setting for a score, between those of a curve."""
    if not curve:
        return default
    ordered = sorted(curve, key=lambda point: point.score)
    return float(np.interp(score, [point.score for point in ordered], [point.quality for point in ordered]))
