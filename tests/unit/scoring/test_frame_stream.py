"""Streams of raw frames: how they are divided into runs, and that runs put together equal one pass.

The engine here is a small one that depends on any number of neighbours; integration tests use libvmaf.
"""

import asyncio
import os
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from io import FileIO
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import eventually, turns
from vmafx.api.hardware import Backend
from vmafx.scoring.engines.engine import Engine, FrameFormat, Group, MeasuredRun, Measurement, Run, SeparateClips
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput, EngineFailure
from vmafx.scoring.frame_stream import (
    PIXEL_FORMATS,
    FrameScorer,
    FrameScores,
    RawPair,
    StreamSummary,
    check_format,
    plan_runs,
)
from vmafx.scoring.models import VmafModel
from vmafx.scoring.request import ClipLimits, ScoreOptions
from vmafx.scoring.result import EngineFacts

FORMAT = FrameFormat(64, 64, "yuv420p")
FRAME_BYTES = 64 * 64 * 3 // 2
LENGTHS = st.integers(1, 40)
SUBSAMPLES = st.one_of(st.integers(1, 12), st.integers(1, 1000))
NEIGHBOURS = st.integers(0, 3)


class SlidingEngine:
    """Its score of a frame depends on all of its neighbours, and on which of them there are."""

    backend: Backend = "cpu"
    luma_only = False

    def __init__(self, neighbours: int, *, missed: int = 0) -> None:
        self.neighbours, self._missed = neighbours, missed

    def identity(self) -> tuple[str | int, ...]:
        return ("sliding",)

    async def lacks(self, _measurement: Measurement) -> str | None:
        return None

    def group(
        self, run: Run, measurement: Measurement, frames: FrameFormat, clips: int
    ) -> AbstractAsyncContextManager[Group]:
        return nullcontext(SeparateClips(self, run, measurement, frames, clips))

    async def close(self) -> None:
        pass

    async def score(
        self,
        run: Run,
        measurement: Measurement,
        frames: FrameFormat,
        reference: FileIO,
        distorted: FileIO,
        on_scored: Callable[[int], None],
    ) -> MeasuredRun:
        assert frames == FORMAT
        with reference, distorted:
            left, right = reference.readall(), distorted.readall()
        assert len(left) == len(right)
        assert len(left) % FRAME_BYTES == 0
        pairs = [left[at] * 256 + right[at] for at in range(0, len(left), FRAME_BYTES)]
        on_scored(len(pairs))
        first = run.fed(self.neighbours, measurement.subsample).first
        numbers = [
            number
            for number in range(0, len(pairs), measurement.subsample)
            if first + number >= run.first and (run.end is None or first + number < run.end)
        ]
        scores = array("d", (self._score(pairs, number) for number in numbers))
        columns = {"vmaf": scores, "twice": array("d", (2 * score for score in scores))}
        placed = array("q", (first + number for number in numbers))
        return MeasuredRun(placed, columns, len(pairs) - self._missed, 1.0, EngineFacts("", ""))

    def _score(self, pairs: list[int], number: int) -> float:
        near = range(max(0, number - self.neighbours), min(len(pairs), number + self.neighbours + 1))
        return float(sum(pairs[other] * 7 ** (other - number + self.neighbours) for other in near))


class OneEngine(Engines):
    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    async def choose(self, _backend: Backend | None = None, _measurement: Measurement | None = None) -> Engine:
        return self._engine


def pair(number: int) -> RawPair:
    return RawPair(bytes([number % 251]) * FRAME_BYTES, bytes([number % 13]) * FRAME_BYTES)


async def first_pairs(frames: int) -> AsyncIterator[RawPair]:
    for number in range(frames):
        yield pair(number)


async def scored(scorer: FrameScorer, frames: int, options: ScoreOptions) -> tuple[list[FrameScores], StreamSummary]:
    *scores, summary = [one async for one in scorer.stream(FORMAT, first_pairs(frames), options)]
    assert isinstance(summary, StreamSummary)
    return [one for one in scores if isinstance(one, FrameScores)], summary


@given(LENGTHS, SUBSAMPLES, NEIGHBOURS, st.integers(1, 10**9), st.integers(0, 1 << 32))
def test_runs_measure_every_frame_once_and_hold_its_neighbours(
    length: int, subsample: int, neighbours: int, pair_bytes: int, memory: int
) -> None:
    plan = plan_runs(length, subsample, neighbours, pair_bytes, memory)
    runs = [(plan.run(index), plan.fed(index)) for index in range(4)]
    measured = [kept for run, _ in runs for kept in range(run.first, run.end or 0) if kept % plan.step == 0]
    assert [plan.number(kept) for kept in measured] == [subsample * index for index in range(4 * plan.measured)]
    # The kept frames, by their numbers in the stream.
    kept_frames = [number for number in range(plan.number(measured[-1]) + neighbours + 1) if plan.keeps(number)]
    for kept in measured:
        near = range(max(0, kept - neighbours), kept + neighbours + 1)
        offset = plan.number(kept) - kept
        assert [kept_frames[other] for other in near] == [other + offset for other in near]
    for run, fed in runs:
        assert fed.start <= max(0, run.first - neighbours)
        assert fed.stop == (run.end or 0) + neighbours
        assert len(fed) <= plan.measured * plan.step + plan.overlap
    for (_, before), (_, after) in pairwise(runs):
        assert 0 <= before.stop - after.start <= plan.overlap


@given(LENGTHS, SUBSAMPLES, NEIGHBOURS, st.integers(1, 10**9), st.integers(0, 1 << 32))
def test_runs_are_as_long_as_memory_and_the_given_length_allow(
    length: int, subsample: int, neighbours: int, pair_bytes: int, memory: int
) -> None:
    plan = plan_runs(length, subsample, neighbours, pair_bytes, memory)
    assert 1 <= plan.measured <= max(1, length // subsample)
    if plan.measured > 1:
        assert plan.held * pair_bytes <= memory
    if plan.measured < length // subsample:  # one more would not fit
        assert (plan.held + 2 * plan.step) * pair_bytes > memory


@pytest.mark.parametrize(
    ("width", "height", "bytes_per_pixel", "measured"),
    [(1920, 1080, 1.5, 25), (1920, 1080, 3, 25), (3840, 2160, 1.5, 18), (3840, 2160, 3, 7), (7680, 4320, 1.5, 1)],
)
def test_runs_of_large_frames_are_shorter(width: int, height: int, bytes_per_pixel: float, measured: int) -> None:
    """As documented."""
    assert plan_runs(25, 1, 1, int(2 * width * height * bytes_per_pixel), 1 << 30).measured == measured


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 12), NEIGHBOURS)
def test_a_stream_equals_one_pass(frames: int, length: int, subsample: int, neighbours: int) -> None:
    engines, options = OneEngine(SlidingEngine(neighbours)), ScoreOptions(subsample=subsample, pooling="p5")
    scores, summary = asyncio.run(scored(FrameScorer(engines, run_length=length), frames, options))
    whole, whole_summary = asyncio.run(scored(FrameScorer(engines, run_length=10_000), frames, options))
    assert scores == whole
    assert [one.number for one in scores] == list(range(0, frames, subsample))
    assert (summary.score, summary.features) == (whole_summary.score, whole_summary.features)
    assert (summary.received, summary.frames) == (frames, len(scores))


async def test_frames_between_those_that_are_measured_do_not_change_a_score() -> None:
    """A whole pass over a subsampled stream drops them as well, so the engine is asked itself."""
    frames, subsample, engine = 50, 9, SlidingEngine(2)
    scores, _ = await scored(FrameScorer(OneEngine(engine), run_length=20), frames, ScoreOptions(subsample=subsample))
    pairs = [pair(number) for number in range(frames)]
    left, right = (b"".join(getattr(one, part) for one in pairs) for part in ("reference", "distorted"))
    files = [FileIO(os.memfd_create("frames"), "r+") for _ in range(2)]
    for file, content in zip(files, (left, right), strict=True):
        file.write(content)
        file.seek(0)
    measurement = Measurement(model=VmafModel("", "", ""), subsample=subsample)
    whole = await engine.score(Run(), measurement, FORMAT, files[0], files[1], lambda _: None)
    assert [(one.number, one.score) for one in scores] == list(zip(whole.numbers, whole.values["vmaf"], strict=True))


async def test_scores_of_a_run_come_once_the_frame_after_it_has_arrived() -> None:
    scorer, options = FrameScorer(OneEngine(SlidingEngine(1)), run_length=4), ScoreOptions()
    seen: list[int] = []
    second_run = asyncio.Event()

    async def waits_for_scores() -> AsyncIterator[RawPair]:
        for number in range(10):
            if number == 5:
                await second_run.wait()
            yield pair(number)

    async with aclosing(scorer.stream(FORMAT, waits_for_scores(), options)) as scores:
        async for one in scores:
            seen += [one.number] if isinstance(one, FrameScores) else []
            if seen[-1] == 3:
                second_run.set()
    assert seen == list(range(10))


async def test_no_more_than_two_runs_are_read_ahead() -> None:
    scorer, pulled = FrameScorer(OneEngine(SlidingEngine(1)), run_length=4), []

    async def endless() -> AsyncIterator[RawPair]:
        for number in count():
            pulled.append(number)
            yield pair(number)

    async with aclosing(scorer.stream(FORMAT, endless(), ScoreOptions())) as scores:
        async for _ in scores:
            await eventually(lambda: len(pulled) >= 9, "the second run and its neighbour have arrived")
            await turns(100)
            break
        assert len(pulled) == 9


async def test_closing_a_stream_stops_a_source_that_waits() -> None:
    scorer, waiting, stopped = FrameScorer(OneEngine(SlidingEngine(1)), run_length=4), asyncio.Event(), asyncio.Event()

    async def waits() -> AsyncIterator[RawPair]:
        async for one in first_pairs(5):
            yield one
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with aclosing(scorer.stream(FORMAT, waits(), ScoreOptions())) as scores:
        await anext(scores)
        await waiting.wait()
    assert stopped.is_set()


@pytest.mark.parametrize("frames", [3, 9])
async def test_an_error_of_the_source_is_passed_on_after_the_scores_before_it(frames: int) -> None:
    scorer, seen = FrameScorer(OneEngine(SlidingEngine(1)), run_length=4), []

    async def breaks() -> AsyncIterator[RawPair]:
        async for one in first_pairs(frames):
            yield one
        raise ConnectionResetError

    async def consume() -> None:
        async for one in scorer.stream(FORMAT, breaks(), ScoreOptions()):
            seen.append(one)  # noqa: PERF401 - those before the error count

    with pytest.raises(ConnectionResetError):
        await consume()
    assert len(seen) == (frames - 1) // 4 * 4


async def test_an_engine_that_misses_frames_is_a_failure() -> None:
    with pytest.raises(EngineFailure, match="received 2 of 3 frames"):
        await scored(FrameScorer(OneEngine(SlidingEngine(1, missed=1))), 3, ScoreOptions())


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "reference: the stream has no frames"),
        ([pair(0)] * 3, "options: the stream has more than 2 frames, which is the limit"),
        (
            [pair(0), RawPair(pair(0).reference[1:], b"")],
            "reference: frame 1 has 6,143 bytes, but a frame of 64x64 in yuv420p has 6,144",
        ),
        (
            [RawPair(pair(0).reference, pair(0).distorted + b"0")],
            "distorted: frame 0 has 6,145 bytes, but a frame of 64x64 in yuv420p has 6,144",
        ),
    ],
)
async def test_bad_frames_are_refused(pairs: list[RawPair], message: str) -> None:
    async def source() -> AsyncIterator[RawPair]:
        for one in pairs:
            yield one

    scorer = FrameScorer(OneEngine(SlidingEngine(1)), limits=ClipLimits(frames=2))
    with pytest.raises(BadInput) as error:
        [one async for one in scorer.stream(FORMAT, source())]
    assert str(error.value) == message


@pytest.mark.parametrize("part", ["reference", "distorted"])
async def test_samples_beyond_the_bit_depth_are_refused(part: str) -> None:
    good = (1023).to_bytes(2, "little") * FRAME_BYTES
    bad = good[:-2] + (1024).to_bytes(2, "little")

    async def source() -> AsyncIterator[RawPair]:
        yield RawPair(bad, good) if part == "reference" else RawPair(good, bad)

    scorer = FrameScorer(OneEngine(SlidingEngine(1)))
    with pytest.raises(BadInput, match=f"^{part}: frame 0 has a sample of 1,024, but .* the highest is 1,023"):
        [one async for one in scorer.stream(FrameFormat(64, 64, "yuv420p10le"), source())]


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        (FrameFormat(640, 360, "nv12"), {}, "raw frames must be yuv420p, .*, yuv444p10le, not 'nv12'"),
        (FrameFormat(640, 360, "yuv420p12le"), {}, "not 'yuv420p12le'"),
        (FrameFormat(640, 360, ""), {}, "not ''"),
        (FrameFormat(0, 360, "yuv420p"), {}, "0x360 is too small"),
        (FrameFormat(640, 63, "yuv420p"), {}, "640x63 is too small for VMAF, which needs 64x64 or more"),
        (FrameFormat(16385, 64, "yuv420p"), {}, "16385x64 is more than the limit of 16,384 pixels"),
        (FrameFormat(8192, 4321, "yuv420p"), {}, "8192x4321 is more than the limit of 35,389,440 pixels"),
        (FrameFormat(160, 90, "yuv420p"), {"features": ("ms_ssim",)}, "ms_ssim needs 176x176 or more"),
        (FrameFormat(160, 90, "yuv420p"), {"features": ("cambi",)}, "cambi needs a width of 320 to 4096"),
        (FrameFormat(160, 90, "yuv444p"), {"features": ("ciede",)}, "need frames of 160x90 in yuv420p.* not converted"),
        (FrameFormat(160, 90, "yuv420p"), {"size": (320, 180)}, "need frames of 320x180 in yuv420p"),
        (FrameFormat(160, 90, "yuv420p"), {"conform": True}, "needs the frame rate"),
    ],
)
async def test_formats_that_cannot_be_scored_are_refused_before_a_frame_is_read(
    frames: FrameFormat, options: dict[str, Any], message: str
) -> None:
    pulled = []

    async def source() -> AsyncIterator[RawPair]:
        pulled.append(True)
        yield pair(0)

    with pytest.raises(BadInput, match=message):
        [one async for one in FrameScorer().stream(frames, source(), ScoreOptions(**options))]
    assert pulled == []


@pytest.mark.parametrize("pixel_format", PIXEL_FORMATS)
@pytest.mark.parametrize("size", [(64, 64), (65, 67), (8192, 4320), (16384, 64)])
def test_formats_that_can_be_scored_are_accepted(pixel_format: str, size: tuple[int, int]) -> None:
    check_format(FrameFormat(*size, pixel_format), ScoreOptions(), ClipLimits())
