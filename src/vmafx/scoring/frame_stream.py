"""FrameScorer: scores pairs of raw frames as they arrive, and pools the scores at the end.

A stream is scored in runs of frames, one after the other, while the frames of the next run arrive. Runs are exact
(engines/engine.py), so the values of every frame and the summary are those that Scorer yields for the same frames in
two raw clips.

The frames of a run lie in files in memory, not in pipes: the engine reads each at its own pace, and nothing has to be
written while it runs.
"""

import asyncio
import os
import time
from array import array
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import ExitStack, aclosing, closing, contextmanager
from io import FileIO
from itertools import count, islice
from typing import cast

import msgspec
import numpy as np

from vmafx.api.schema import field_schema
from vmafx.api.scoring import PixelFormat, RawFormat
from vmafx.scoring.clip import Chroma, Clip, raw_frame_bytes
from vmafx.scoring.comparison import measurement_for
from vmafx.scoring.engines.engine import Engine, FrameFormat, MeasuredRun, Measurement, Run
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, NodeFault
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import VmafModel, open_model, with_scores
from vmafx.scoring.plan import make_plan
from vmafx.scoring.pooling import pool, summary
from vmafx.scoring.request import ClipLimits, ScoreOptions, check_options
from vmafx.scoring.result import Column, EngineFacts, FeatureStatistics
from vmafx.scoring.stall import StallWatch
from vmafx.tasks import in_thread

DEFAULT_RUN_LENGTH = 25  # frames: a second or less of most videos
DEFAULT_MEMORY = 1 << 30  # bytes of frames
PIXEL_FORMATS: dict[str, tuple[Chroma, int]] = {  # with the bit depth
    "yuv420p": ("420", 8),
    "yuv422p": ("422", 8),
    "yuv444p": ("444", 8),
    "yuv420p10le": ("420", 10),
    "yuv422p10le": ("422", 10),
    "yuv444p10le": ("444", 10),
}
MAX_DIMENSION: int = field_schema(RawFormat, "width")["maximum"]


class RawPair(msgspec.Struct, frozen=True):
    """A frame of the reference and the same frame of the distorted clip: planes without padding, Y, U, V."""

    reference: bytes
    distorted: bytes


class FrameScores(msgspec.Struct, frozen=True):
    """What was measured in one frame: `vmaf`, and the features by name."""

    number: int  # in the stream, from 0
    values: dict[str, float]

    @property
    def score(self) -> float:
        return self.values["vmaf"]


class StreamSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a stream, pooled."""

    score: float
    pooling: str
    model: str
    received: int  # pairs of frames
    frames: int  # scored; fewer than received with subsampling
    features: dict[str, FeatureStatistics]
    engine: EngineFacts
    elapsed_ms: int


class RunPlan(msgspec.Struct, frozen=True):
    """How a stream is divided into runs.

    An engine needs the frames that it measures and their neighbours. With subsampling there may be others between them:
    these are dropped, and the frames that are kept are numbered anew, so that runs stay short.
    """

    subsample: int
    neighbours: int
    measured: int  # frames in a run that are measured

    @property
    def step(self) -> int:
        """The subsampling of the frames that are kept."""
        return min(self.subsample, 2 * self.neighbours + 1)

    @property
    def overlap(self) -> int:
        """The most frames that two runs in a row are both fed."""
        return 2 * self.neighbours

    @property
    def held(self) -> int:
        """The most pairs in memory: a run that is scored, the one after it, and the frames kept for the third."""
        return 2 * (self.measured * self.step + self.overlap) + self.overlap + 1

    def keeps(self, number: int) -> bool:
        """Whether an engine needs this frame of the stream."""
        return min(number % self.subsample, -number % self.subsample) <= self.neighbours

    def run(self, index: int) -> Run:
        """From its first measured frame to its last, in numbers of kept frames."""
        first = index * self.measured
        return Run(first * self.step, (first + self.measured - 1) * self.step + 1)

    def fed(self, index: int) -> range:
        """The kept frames that an engine is fed for a run."""
        fed = self.run(index).fed(self.neighbours, self.step)
        return range(fed.first, cast("int", fed.end))  # each of these runs has an end

    def number(self, kept: int) -> int:
        """The number in the stream of a kept frame that is measured."""
        return kept // self.step * self.subsample


def plan_runs(run_length: int, subsample: int, neighbours: int, pair_bytes: int, memory: int) -> RunPlan:
    """Runs of `run_length` frames of the stream, or shorter ones if these do not fit into memory.

    At least one frame is measured in each.
    """
    shortest = RunPlan(subsample, neighbours, 1)
    room = memory // pair_bytes - shortest.held
    fitting = 1 + room // (2 * shortest.step)
    return msgspec.structs.replace(shortest, measured=max(1, min(run_length // subsample, fitting)))


class FrameScorer:
    """Scores streams of raw frames with the engines of this machine. Its methods may run concurrently.

    `run_length` is the number of frames that are scored together, and `memory` limits the bytes of frames that one
    stream holds. For large frames, runs are shorter, so that two of them fit; the limit is exceeded only if runs of one
    frame do not fit. Short runs cost CPU time: an engine is started for each, and measures two frames more.
    """

    def __init__(
        self,
        engines: Engines | None = None,
        policy: MediaPolicy | None = None,
        limits: ClipLimits | None = None,
        *,
        run_length: int = DEFAULT_RUN_LENGTH,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._engines, self._policy = engines or Engines(), policy or MediaPolicy()
        self._limits, self._run_length, self._memory = limits or ClipLimits(), run_length, memory

    async def stream(
        self, frames: FrameFormat, pairs: AsyncIterable[RawPair], options: ScoreOptions | None = None
    ) -> AsyncGenerator[FrameScores | StreamSummary, None]:
        """Yields the scores of every frame in order, and finally the summary. Closing the generator stops the work.

        The scores of a frame come once its run and the frame after that have arrived, since motion depends on it, and
        the engine has scored the run. While a run is scored, the next one is read from `pairs`, and no more than that.

        Raises ScoringError, after the scores of the runs before; errors of `pairs` are passed on.
        """
        started, options = time.monotonic(), options or ScoreOptions()
        check_options(options)
        check_format(frames, options, self._limits)
        async with open_model(options.model, self._policy) as model:
            measurement = measurement_for(options, model)
            engine = await self._engines.choose(options.backend, measurement)
            pair_bytes = 2 * _fed_bytes(frames, luma_only=engine.luma_only)
            plan = plan_runs(self._run_length, options.subsample, engine.neighbours, pair_bytes, self._memory)
            measurement = msgspec.structs.replace(measurement, subsample=plan.step)
            arrivals = _Arrivals(frames, plan, self._limits.frames, luma_only=engine.luma_only)
            scores = _Scores(plan, model)
            async with aclosing(_one_ahead(arrivals.runs(pairs))) as runs:
                async for run in runs:
                    with closing(run):
                        measured = await _measure(engine, run, measurement, frames)
                    for frame in await in_thread(scores.add, measured):
                        yield frame
            yield await in_thread(scores.summary, options, arrivals.received, started)


def check_format(frames: FrameFormat, options: ScoreOptions, limits: ClipLimits) -> None:
    """Raises BadInput for frames that cannot be scored as they are: those of a stream are not converted."""
    if frames.pixel_format not in PIXEL_FORMATS:
        raise BadInput("options", f"raw frames must be {', '.join(PIXEL_FORMATS)}, not {frames.pixel_format!r}")
    size = f"{frames.width}x{frames.height}"
    if max(frames.width, frames.height) > MAX_DIMENSION:
        raise BadInput("options", f"{size} is more than the limit of {MAX_DIMENSION:,} pixels in a row or column")
    chroma, bit_depth = PIXEL_FORMATS[frames.pixel_format]
    clip = Clip(
        container="rawvideo",
        codec="rawvideo",
        width=frames.width,
        height=frames.height,
        pixel_format=frames.pixel_format,
        bit_depth=bit_depth,
        chroma=chroma,
    )
    needed = make_plan(clip, clip, options, limits).frames
    if needed != frames:
        raise BadInput(
            "options",
            f"they need frames of {needed.width}x{needed.height} in {needed.pixel_format}, but the stream has {size} in"
            f" {frames.pixel_format}, and raw frames are not converted",
        )


def _frame_bytes(frames: FrameFormat) -> int:
    pixel_format = cast("PixelFormat", frames.pixel_format)
    return raw_frame_bytes(RawFormat(width=frames.width, height=frames.height, pixelFormat=pixel_format))


def _fed_bytes(frames: FrameFormat, *, luma_only: bool) -> int:
    """The bytes of a frame that an engine is fed: its first ones."""
    if not luma_only:
        return _frame_bytes(frames)
    return frames.width * frames.height * (1 if PIXEL_FORMATS[frames.pixel_format][1] == 8 else 2)


class _HeldRun:
    """A run and the frames that an engine is fed for it, in two files in memory."""

    def __init__(self, run: Run, fed_bytes: int) -> None:
        self.run, self.received = run, 0
        self._fed_bytes = fed_bytes  # of each frame
        with _memory_errors_as_node_fault(), ExitStack() as stack:
            self.reference = stack.enter_context(FileIO(os.memfd_create("reference"), "r+"))
            self.distorted = stack.enter_context(FileIO(os.memfd_create("distorted"), "r+"))
            self._files = stack.pop_all()

    def add(self, pair: RawPair) -> None:
        """The positions of the files stay at the start, where the engine begins to read."""
        with _memory_errors_as_node_fault():
            for file, frame in ((self.reference, pair.reference), (self.distorted, pair.distorted)):
                fed, written, start = memoryview(frame)[: self._fed_bytes], 0, self.received * self._fed_bytes
                while written < len(fed):
                    written += os.pwrite(file.fileno(), fed[written:], start + written)
        self.received += 1

    def close(self) -> None:
        self._files.close()


@contextmanager
def _memory_errors_as_node_fault() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NodeFault(f"this machine cannot hold more frames in memory: {error.strerror}") from error


class _Arrivals:
    """The frames of one stream: counted, checked, and put into runs."""

    def __init__(self, frames: FrameFormat, plan: RunPlan, limit: int, *, luma_only: bool) -> None:
        self.received = 0
        self._frames, self._plan, self._limit = frames, plan, limit
        self._frame_bytes, self._fed_bytes = _frame_bytes(frames), _fed_bytes(frames, luma_only=luma_only)
        self._bit_depth = PIXEL_FORMATS[frames.pixel_format][1]

    async def runs(self, pairs: AsyncIterable[RawPair]) -> AsyncGenerator[_HeldRun, None]:
        """The runs as soon as an engine can score them. Who receives a run closes it."""
        plan, recent, kept = self._plan, deque[RawPair](maxlen=self._plan.overlap), 0
        async with aclosing(self._needed(pairs)) as needed:
            for index in count():
                run, fed = plan.run(index), plan.fed(index)
                with ExitStack() as stack:
                    held = stack.enter_context(closing(_HeldRun(run, self._fed_bytes)))
                    shared = max(0, kept - fed.start)  # with the run before
                    for pair in islice(recent, len(recent) - shared, None):
                        await in_thread(held.add, pair)
                    while held.received < len(fed) and (arrived := await anext(needed, None)) is not None:
                        await in_thread(held.add, arrived)
                        recent.append(arrived)
                        kept += 1
                    if kept <= run.first:  # the stream has ended
                        return
                    stack.pop_all()
                yield held

    async def _needed(self, pairs: AsyncIterable[RawPair]) -> AsyncGenerator[RawPair, None]:
        """The pairs that are measured and their neighbours."""
        async for pair in pairs:
            number = self.received
            if number == self._limit:
                raise BadInput("options", f"the stream has more than {self._limit:,} frames, which is the limit")
            self._check_size(pair.reference, "reference")
            self._check_size(pair.distorted, "distorted")
            self.received += 1
            if self._plan.keeps(number):
                if self._bit_depth > 8:
                    await in_thread(self._check_samples, pair, number)
                yield pair

    def _check_size(self, frame: bytes, part: InputPart) -> None:
        if len(frame) != self._frame_bytes:
            frames = self._frames
            raise BadInput(
                part,
                f"frame {self.received:,} has {len(frame):,} bytes, but a frame of {frames.width}x{frames.height} in"
                f" {frames.pixel_format} has {self._frame_bytes:,}",
            )

    def _check_samples(self, pair: RawPair, number: int) -> None:
        """libvmaf does not check them: samples beyond the bit depth give scores that mean nothing."""
        most = (1 << self._bit_depth) - 1
        parts: tuple[tuple[InputPart, bytes], ...] = (("reference", pair.reference), ("distorted", pair.distorted))
        for part, frame in parts:
            if (highest := int(np.frombuffer(frame, "<u2").max())) > most:
                raise BadInput(
                    part,
                    f"frame {number:,} has a sample of {highest:,}, but with {self._bit_depth} bits the highest is"
                    f" {most:,}; samples are the low bits of 16, little-endian",
                )


async def _one_ahead(runs: AsyncGenerator[_HeldRun, None]) -> AsyncGenerator[_HeldRun, None]:
    """The runs; the next one arrives while its predecessor is used."""
    async with aclosing(runs):
        upcoming = asyncio.ensure_future(anext(runs, None))
        try:
            while (run := await upcoming) is not None:
                upcoming = asyncio.ensure_future(anext(runs, None))
                yield run
        finally:
            upcoming.cancel()
            await asyncio.wait([upcoming])
            if not upcoming.cancelled() and upcoming.exception() is None and (unused := upcoming.result()) is not None:
                unused.close()


async def _measure(engine: Engine, held: _HeldRun, measurement: Measurement, frames: FrameFormat) -> MeasuredRun:
    with StallWatch() as watch:
        async with watch.watch() as note_progress:
            measured = await engine.score(
                held.run, measurement, frames, held.reference, held.distorted, lambda _scored: note_progress()
            )
    if measured.received != held.received:
        raise EngineFailure(f"the engine received {measured.received} of {held.received} frames")
    return measured


class _Scores:
    """The values of all frames of a stream so far, in columns."""

    def __init__(self, plan: RunPlan, model: VmafModel) -> None:
        self._plan, self._model = plan, model
        self._engine: EngineFacts | None = None
        self._columns: dict[str, Column] = {}

    def add(self, measured: MeasuredRun) -> list[FrameScores]:
        values = with_scores(self._model, measured.values)
        if self._engine is None:
            self._engine, self._columns = measured.facts, {name: array("d") for name in values}
        if values.keys() != self._columns.keys():
            raise EngineFailure(f"the engine yielded other features than before: {', '.join(values)}")
        for name, column in values.items():
            self._columns[name].extend(column)
        return [
            FrameScores(self._plan.number(kept), dict(zip(values, row, strict=True)))
            for kept, row in zip(measured.numbers, zip(*values.values(), strict=True), strict=True)
        ]

    def summary(self, options: ScoreOptions, received: int, started: float) -> StreamSummary:
        if self._engine is None:
            raise BadInput("reference", "the stream has no frames")
        scores = self._columns["vmaf"]
        return StreamSummary(
            score=pool(scores, options.pooling),
            pooling=options.pooling,
            model=self._model.name,
            received=received,
            frames=len(scores),
            features={name: summary(column) for name, column in self._columns.items()},
            engine=self._engine,
            elapsed_ms=round((time.monotonic() - started) * 1000),
        )
