"""libvmaf against VMAF written a second time: every feature and the score, of every frame."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import clips
from tests.oracle.adm import adm2
from tests.oracle.clips import Clip, Distortion, Scene
from tests.oracle.libvmaf import score_clips
from tests.oracle.model import Model, UnknownModel, load
from tests.oracle.motion import motion2
from tests.oracle.score import FIELDS, FrameScore, score_frames
from tests.oracle.vif import vif

FFMPEG = Path(import_module("imageio_ffmpeg").get_ffmpeg_exe())  # imported so because it has no types
FEATURE_BOUND, SCORE_BOUND = 1e-3, 0.05
SIZE = (256, 144)
BIT_DEPTHS = (8, 10)
KINDS: tuple[tuple[Scene, Distortion], ...] = (
    (clips.noise, clips.grain),
    (clips.noise, clips.rescaled),
    (clips.panning, clips.blur),
    (clips.panning, clips.rescaled),
    (clips.panning, clips.more_contrast),
    (clips.panning, clips.less_contrast),
    (clips.still, clips.unchanged),
    (clips.still, clips.sharpened),
    (clips.gradients, clips.unchanged),
    (clips.gradients, clips.banding),
    (clips.gradients, clips.grain),
    (clips.hard_cut, clips.banding),
    (clips.dark, clips.grain),
    (clips.edges, clips.blur),
    (clips.flat, clips.grain),
)


def label(kind: tuple[Scene, Distortion]) -> str:
    return "-".join(part.__name__ for part in kind)


@pytest.fixture(scope="module")
def model() -> Model:
    return load(FFMPEG, "vmaf_v0.6.1")


def assert_agreement(ours: list[FrameScore], engines: list[FrameScore]) -> None:
    for number, (mine, its) in enumerate(zip(ours, engines, strict=True)):
        for field in FIELDS:
            bound = SCORE_BOUND if field == "score" else FEATURE_BOUND
            assert getattr(its, field) == pytest.approx(getattr(mine, field), abs=bound, rel=0), (
                f"frame {number}: {field}"
            )


def check(pair: tuple[Clip, Clip], model: Model, folder: Path, *, options: str = "") -> list[FrameScore]:
    reference, distorted = pair
    ours = score_frames(reference.planes, distorted.planes, reference.bit_depth, model)
    engines = score_clips(FFMPEG, reference, distorted, folder, model=f"version={model.name}{options}")
    assert_agreement(ours, engines)
    return engines


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_libvmaf_scores_every_kind_of_clip_rightly(
    kind: tuple[Scene, Distortion], bit_depth: int, model: Model, tmp_path: Path
) -> None:
    check(clips.pair(*kind, size=SIZE, frames=5, bit_depth=bit_depth), model, tmp_path)


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize(
    "size", [(192, 108), (325, 181), (333, 181), (576, 324)], ids=lambda size: "x".join(map(str, size))
)
def test_libvmaf_scores_every_size_rightly(size: tuple[int, int], bit_depth: int, model: Model, tmp_path: Path) -> None:
    check(clips.pair(clips.panning, clips.blur, size=size, frames=3, bit_depth=bit_depth), model, tmp_path)


@pytest.mark.parametrize("frames", [1, 2])
def test_libvmaf_scores_the_shortest_clips_rightly(frames: int, model: Model, tmp_path: Path) -> None:
    scores = check(clips.pair(clips.panning, clips.blur, size=SIZE, frames=frames, bit_depth=8), model, tmp_path)
    assert len(scores) == frames
    assert scores[0].motion2 == 0


def test_twelve_bits(model: Model, tmp_path: Path) -> None:
    check(clips.pair(clips.panning, clips.grain, size=SIZE, frames=2, bit_depth=12), model, tmp_path)


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize("name", ["vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"])
def test_the_other_models(name: str, bit_depth: int, tmp_path: Path) -> None:
    check(
        clips.pair(clips.panning, clips.sharpened, size=SIZE, frames=3, bit_depth=bit_depth),
        load(FFMPEG, name),
        tmp_path,
    )


def test_the_phone_model_is_the_same_one_with_its_transform(tmp_path: Path) -> None:
    pair = clips.pair(clips.panning, clips.blur, size=SIZE, frames=3, bit_depth=8)
    phone = load(FFMPEG, "vmaf_v0.6.1", enable_transform=True)
    check(pair, phone, tmp_path, options=r"\\:enable_transform=true")


def test_a_clip_that_is_its_own_reference_keeps_everything() -> None:
    plane = clips.texture(np.random.default_rng(1), 144, 256)
    assert vif(plane, plane, 100) == pytest.approx((1, 1, 1, 1), abs=1e-4)
    assert adm2(plane, plane, 100) == pytest.approx(1, abs=1e-4)


def test_neg_gives_more_contrast_no_credit() -> None:
    before = clips.texture(np.random.default_rng(1), 144, 256) / 2 + 50
    after = before * 1.25
    assert all(value > 1 for value in vif(before, after, 100))
    assert all(value < 1 for value in vif(before, after, 1))
    assert adm2(before, after, 1) < 1 < adm2(before, after, 100)


def test_neither_a_still_nor_a_cut_between_stills_moves() -> None:
    one, other = np.full(SIZE, 60.0), np.full(SIZE, 190.0)
    assert motion2([one, one, one]) == [0, 0, 0]
    assert motion2([one, one, other, other]) == [0, 0, 0, 0]
    assert motion2([one, other]) == [0, pytest.approx(130)]


def test_models_that_are_not_there() -> None:
    with pytest.raises(UnknownModel, match="vmaf_v9"):
        load(FFMPEG, "vmaf_v9")
