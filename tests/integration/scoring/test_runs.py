"""Runs are exact: the values of the runs of a clip, put together, are those of one pass over it."""

import asyncio
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.decoding import decoder_of
from tests.support.video import ffmpeg, lossless, scene
from vmafx.scoring.decoder.messages import Conversion
from vmafx.scoring.engines.engine import Engine, FrameFormat, MeasuredRun, Measurement, Run
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import open_model

FEATURES = ("psnr", "ssim", "psnr_hvs", "ciede")
MODELS = ("vmaf_v0.6.1", "vmaf_v0.6.1neg")
Pair = tuple[Path, Path, Conversion, int]  # a reference, a distorted clip, their common format, their frames
Values = tuple[list[int], dict[str, list[float]]]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """Clips of different codecs, sizes and bit depths, with frames that depend on others, and a cut."""
    folder = tmp_path_factory.mktemp("clips")
    small, deep, cut = (folder / name for name in ("small.mp4", "deep.mkv", "cut.mpg"))
    first = lossless(scene(frames=14, size=(96, 64)), folder / "first.mkv")
    ffmpeg("-i", first, "-c:v", "libx264", "-crf", "35", "-bf", "3", small)
    second = lossless(scene(frames=10, size=(256, 144)), folder / "second.mkv")
    ffmpeg("-i", second, "-vf", "scale=192:108", "-c:v", "libx265", "-pix_fmt", "yuv420p10le", "-crf", "35", deep)
    third = folder / "third.mkv"
    scenes = "[0]trim=end_frame=9[a];testsrc2=s=96x64:r=25,trim=end_frame=12,setpts=PTS+9/25/TB[b];[a][b]concat"
    ffmpeg("-i", first, "-filter_complex", f"{scenes},format=yuv420p", "-c:v", "ffv1", third)
    ffmpeg("-i", third, "-c:v", "mpeg2video", "-q:v", "9", "-bf", "2", cut)
    return [
        (first, small, Conversion(width=96, height=64, pixel_format="yuv420p"), 14),
        (second, deep, Conversion(width=256, height=144, pixel_format="yuv420p10le"), 10),
        (third, cut, Conversion(width=96, height=64, pixel_format="yuv420p"), 21),
    ]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return asyncio.run(Engines().choose())


async def measure(engine: Engine, run: Run, what: Measurement, pair: Pair) -> MeasuredRun:
    """Feeds the engine with the frames of a run and their neighbours."""
    reference, distorted, conversion, _ = pair
    frames = FrameFormat(conversion.width, conversion.height, conversion.pixel_format)
    fed = run.fed(engine.neighbours, what.subsample)
    async with (
        decoder_of(reference) as first,
        decoder_of(distorted) as second,
        first.decode(conversion, threads=1, first=fed.first, end=fed.end) as left,
        second.decode(conversion, threads=1, first=fed.first, end=fed.end) as right,
    ):
        measured = await engine.score(run, what, frames, left.outputs[0], right.outputs[0], lambda _: None)
        await asyncio.gather(left.finished(), right.finished())
    return measured


async def measure_runs(
    engine: Engine, pair: Pair, runs: list[Run], *, model: str, features: tuple[str, ...], subsample: int
) -> Values:
    """The values of the runs, put together."""
    async with open_model(model, MediaPolicy()) as opened:
        what = Measurement(model=opened, features=features, subsample=subsample)
        measured = [await measure(engine, run, what, pair) for run in runs]
    names = measured[0].values.keys()
    assert all(one.values.keys() == names for one in measured)
    numbers = [number for one in measured for number in one.numbers]
    return numbers, {name: [value for one in measured for value in one.values[name]] for name in names}


@settings(
    max_examples=12,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_runs_put_together_equal_one_pass(data: st.DataObject, engine: Engine, pairs: list[Pair]) -> None:
    pair = data.draw(st.sampled_from(pairs), "pair")
    frames = pair[3]
    subsample = data.draw(st.integers(1, 5), "subsample")
    features = tuple(data.draw(st.lists(st.sampled_from(FEATURES), unique=True, max_size=2), "features"))
    model = data.draw(st.sampled_from(MODELS), "model")
    cuts = sorted(data.draw(st.sets(st.integers(1, frames - 1), min_size=1, max_size=3), "cuts"))
    last = data.draw(st.sampled_from([frames, None]), "end")
    runs = [Run(first, end) for first, end in pairwise([0, *cuts])] + [Run(cuts[-1], last)]

    def measured(parts: list[Run]) -> Values:
        return asyncio.run(measure_runs(engine, pair, parts, model=model, features=features, subsample=subsample))

    together, whole = measured(runs), measured([Run()])
    assert whole[0] == list(range(0, frames, subsample))
    assert together == whole


@pytest.mark.parametrize("subsample", [1, 3])
async def test_every_single_frame_equals_one_pass(subsample: int, engine: Engine, pairs: list[Pair]) -> None:
    """The first and the last frame too, and runs in which no frame is measured."""
    pair, model = pairs[1], MODELS[0]
    numbers, whole = await measure_runs(engine, pair, [Run()], model=model, features=(), subsample=subsample)
    for number in (0, 1, 3, pair[3] - 1):
        run = Run(number, number + 1)
        alone, values = await measure_runs(engine, pair, [run], model=model, features=(), subsample=subsample)
        at = slice(*(bisect_left(numbers, limit) for limit in (run.first, number + 1)))
        assert (alone, values) == (numbers[at], {name: column[at] for name, column in whole.items()})
