"""Raw frames scored as they arrive, with a real ffmpeg: the scores are those of Scorer, and nothing is left over."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.oracle.clips import hard_cut
from tests.support.agent_process import children, read
from tests.support.leftovers import MachineState
from tests.support.registry import learned_model
from tests.support.waiting import eventually
from vmafx.api.scoring import PixelFormat, RawFormat
from vmafx.scoring.engines.engine import FrameFormat
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault
from vmafx.scoring.frame_stream import PIXEL_FORMATS, FrameScorer, FrameScores, RawPair, StreamSummary
from vmafx.scoring.learned import encode_model
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.score import Scorer

SIZE = (256, 144)
PLANE_SIZES: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "420": lambda width, height: ((height + 1) // 2, (width + 1) // 2),
    "422": lambda width, height: (height, (width + 1) // 2),
    "444": lambda width, height: (height, width),
}


def make_pairs(pixel_format: str, frames: int, size: tuple[int, int] = SIZE) -> list[RawPair]:
    """A pan with a cut and moving colours, and a coarser, noisy version of it."""
    width, height = size
    chroma, bit_depth = PIXEL_FORMATS[pixel_format]
    rng = np.random.default_rng(3)
    planes = [hard_cut(rng, frames, *shape) for shape in ((height, width), *[PLANE_SIZES[chroma](width, height)] * 2)]
    noisy = [np.floor(plane / 6) * 6 + 3 * rng.standard_normal(plane.shape) for plane in planes]

    def raw(parts: Sequence[np.ndarray], number: int) -> bytes:
        levels = (np.clip(np.rint(part[number] * (1 << (bit_depth - 8))), 0, (1 << bit_depth) - 1) for part in parts)
        return b"".join(level.astype("<u2" if bit_depth > 8 else "u1").tobytes() for level in levels)

    return [RawPair(raw(planes, number), raw(noisy, number)) for number in range(frames)]


async def replay(pairs: Sequence[RawPair]) -> AsyncIterator[RawPair]:
    for pair in pairs:
        yield pair


def frames_of(pixel_format: str, size: tuple[int, int] = SIZE) -> FrameFormat:
    return FrameFormat(*size, pixel_format)


async def assert_equal_to_scorer(
    pairs: Sequence[RawPair], frames: FrameFormat, options: ScoreOptions, folder: Path, run_lengths: Sequence[int]
) -> None:
    """No value of any frame differs, nor does any of the summary."""
    raw = msgspec.convert(
        {"width": frames.width, "height": frames.height, "pixelFormat": frames.pixel_format}, RawFormat
    )
    paths = folder / "reference.yuv", folder / "distorted.yuv"
    for path, part in zip(paths, ("reference", "distorted"), strict=True):
        path.write_bytes(b"".join(getattr(pair, part) for pair in pairs))
    engines = Engines()
    report = await Scorer(engines).score(Source(str(paths[0]), raw), Source(str(paths[1]), raw), options)
    result, names = report.result, list(report.values)
    expected = [
        FrameScores(number, dict(zip(names, row, strict=True)))
        for number, row in zip(report.numbers, zip(*report.values.values(), strict=True), strict=True)
    ]
    assert (result.width, result.height, result.pixelFormat) == (frames.width, frames.height, frames.pixel_format)
    for run_length in run_lengths:
        scorer = FrameScorer(engines, run_length=run_length)
        *scores, summary = [one async for one in scorer.stream(frames, replay(pairs), options)]
        assert scores == expected
        assert isinstance(summary, StreamSummary)
        assert (summary.score, summary.features) == (result.score, result.features)
        assert (summary.pooling, summary.model) == (result.pooling, result.model)
        assert (summary.received, summary.frames) == (len(pairs), result.frames)
        assert summary.engine.versions == result.engine.versions
        assert summary.elapsed_ms > 0


@pytest.mark.parametrize("pixel_format", PIXEL_FORMATS)
async def test_every_format_equals_a_score_of_the_same_frames(pixel_format: PixelFormat, tmp_path: Path) -> None:
    options = ScoreOptions(features=("psnr", "ssim"), threads=2)
    await assert_equal_to_scorer(make_pairs(pixel_format, 9), frames_of(pixel_format), options, tmp_path, [4])


@pytest.mark.parametrize("frames", [1, 2, 8])
async def test_any_length_of_runs_equals_a_score_of_the_same_frames(frames: int, tmp_path: Path) -> None:
    pairs, options = make_pairs("yuv420p", frames), ScoreOptions(pooling="harmonic_mean", threads=1)
    await assert_equal_to_scorer(pairs, frames_of("yuv420p"), options, tmp_path, [1, 2, 3, 7, 8, 25])


@pytest.mark.parametrize("subsample", [2, 3, 5, 20])
async def test_subsampled_streams_equal_a_score_of_the_same_frames(subsample: int, tmp_path: Path) -> None:
    """With and without the frame after the last measured one, and with one that ends before the next is measured."""
    pairs, options = make_pairs("yuv420p", 23), ScoreOptions(subsample=subsample, threads=1)
    for frames in (21, 22, 23):
        await assert_equal_to_scorer(pairs[:frames], frames_of("yuv420p"), options, tmp_path, [1, 11])


async def test_all_features_equal_a_score_of_the_same_frames(tmp_path: Path) -> None:
    """Identical frames among them, whose psnr_hvs and ciede are infinite."""
    size = (336, 190)
    pairs = make_pairs("yuv422p10le", 7, size)
    pairs[2] = RawPair(pairs[2].reference, pairs[2].reference)
    options = ScoreOptions(
        features=("psnr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi"), model="vmaf_v0.6.1neg", pooling="p10"
    )
    await assert_equal_to_scorer(pairs, frames_of("yuv422p10le", size), options, tmp_path, [3])


async def test_odd_sizes_equal_a_score_of_the_same_frames(tmp_path: Path) -> None:
    size = (129, 97)
    pairs = make_pairs("yuv420p", 6, size)
    await assert_equal_to_scorer(pairs, frames_of("yuv420p", size), ScoreOptions(threads=1), tmp_path, [2])


async def test_a_learned_model_predicts_the_same_scores(tmp_path: Path) -> None:
    model = tmp_path / "mine.json"
    model.write_bytes(encode_model(learned_model()))
    pairs, options = make_pairs("yuv420p", 9), ScoreOptions(model=str(model))
    await assert_equal_to_scorer(pairs, frames_of("yuv420p"), options, tmp_path, [4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ScoreOptions(model="none"), "model: there is no model 'none'"),
        (ScoreOptions(subsample=0), "subsample must be 1 to 1000"),
        (ScoreOptions(backend="cuda"), "no engine for the backend cuda"),
    ],
)
async def test_bad_options_are_refused(options: ScoreOptions, message: str) -> None:
    with pytest.raises((BadInput, NodeFault), match=message):
        [one async for one in FrameScorer().stream(frames_of("yuv420p"), replay([]), options)]


def running_engines() -> list[int]:
    return [pid for pid in children(os.getpid()) if "libvmaf=" in read(pid, "cmdline")]


async def endless(pairs: Sequence[RawPair]) -> AsyncIterator[RawPair]:
    while True:
        for pair in pairs:
            yield pair


@pytest.fixture(scope="module")
def slow_pairs() -> list[RawPair]:
    """Frames whose runs take an engine so long that it is seen at work."""
    return make_pairs("yuv420p", 5, (1280, 720))


SLOW = FrameFormat(1280, 720, "yuv420p")
MOMENTS: dict[str, Callable[[], object]] = {
    "immediately": lambda: True,
    "once a run is scored": running_engines,
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_stream_leaves_nothing(moment: str, slow_pairs: list[RawPair], temp_folder: Path) -> None:
    scorer = FrameScorer(Engines())
    before = MachineState(temp_folder)

    async def consume() -> None:
        async for _ in scorer.stream(SLOW, endless(slow_pairs), ScoreOptions(threads=1)):
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    await eventually(MOMENTS[moment], moment, every=0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert running_engines() == []
    await before.check()


async def test_a_stream_that_is_closed_early_leaves_nothing(slow_pairs: list[RawPair], temp_folder: Path) -> None:
    """While the next run is read, or has been read and waits."""
    scorer = FrameScorer(Engines(), run_length=2)
    before = MachineState(temp_folder)
    for scores in (1, 2, 3):
        seen = []
        async with aclosing(scorer.stream(SLOW, endless(slow_pairs), ScoreOptions(threads=1))) as stream:
            async for one in stream:
                seen.append(one)
                if len(seen) == scores:
                    break
    assert running_engines() == []
    await before.check()


@pytest.mark.parametrize(("sign", "error"), [(signal.SIGKILL, NodeFault), (signal.SIGSEGV, EngineFailure)])
async def test_a_killed_or_crashed_engine_ends_the_stream(
    sign: signal.Signals, error: type[Exception], slow_pairs: list[RawPair], temp_folder: Path
) -> None:
    scorer = FrameScorer(Engines())
    before = MachineState(temp_folder)

    async def consume() -> None:
        async for _ in scorer.stream(SLOW, endless(slow_pairs), ScoreOptions(threads=1)):
            pass

    task = asyncio.create_task(consume())
    await eventually(running_engines, "a run is scored", every=0.001)
    for pid in running_engines():
        os.kill(pid, sign)
    with pytest.raises(error, match=f"ffmpeg failed with signal {sign.name}"):
        await task
    await before.check()


async def test_streams_may_be_scored_at_once() -> None:
    """More than the threads of the event loop's pool."""
    scorer, pairs = FrameScorer(Engines(), run_length=3), make_pairs("yuv420p", 5, (64, 64))

    async def consume() -> list[FrameScores | StreamSummary]:
        options = ScoreOptions(threads=1)
        return [one async for one in scorer.stream(FrameFormat(64, 64, "yuv420p"), replay(pairs), options)]

    results = await asyncio.gather(*(consume() for _ in range(12)))
    assert all(one[:-1] == results[0][:-1] for one in results)
    assert len(results[0]) == 6
