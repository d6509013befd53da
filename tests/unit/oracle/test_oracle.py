"""libvmaf compared with an independent implementation of VMAF: every feature and the score of every frame."""

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

FFMPEG = Path(import_module("imageio_ffmpeg").get_ffmpeg_exe())  # import_module, because it has no types
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


def assert_agreement(expected: list[FrameScore], actual: list[FrameScore]) -> None:
    for number, (oracle, engine) in enumerate(zip(expected, actual, strict=True)):
        for field in FIELDS:
            bound = SCORE_BOUND if field == "score" else FEATURE_BOUND
            assert getattr(engine, field) == pytest.approx(getattr(oracle, field), abs=bound, rel=0), (
                f"frame {number}: {field}"
            )


def check(pair: tuple[Clip, Clip], model: Model, folder: Path, *, options: str = "") -> list[FrameScore]:
    reference, distorted = pair
    expected = score_frames(reference.planes, distorted.planes, reference.bit_depth, model)
    actual = score_clips(FFMPEG, reference, distorted, folder, model=f"version={model.name}{options}")
    assert_agreement(expected, actual)
    return actual


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_libvmaf_agrees_on_every_kind_of_clip(
    kind: tuple[Scene, Distortion], bit_depth: int, model: Model, tmp_path: Path
) -> None:
    check(clips.pair(*kind, size=SIZE, frames=5, bit_depth=bit_depth), model, tmp_path)


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize(
    "size", [(192, 108), (325, 181), (333, 181), (576, 324)], ids=lambda size: "x".join(map(str, size))
)
def test_libvmaf_agrees_on_every_size(size: tuple[int, int], bit_depth: int, model: Model, tmp_path: Path) -> None:
    check(clips.pair(clips.panning, clips.blur, size=size, frames=3, bit_depth=bit_depth), model, tmp_path)


@pytest.mark.parametrize("frames", [1, 2])
def test_libvmaf_agrees_on_clips_of_one_and_two_frames(frames: int, model: Model, tmp_path: Path) -> None:
    scores = check(clips.pair(clips.panning, clips.blur, size=SIZE, frames=frames, bit_depth=8), model, tmp_path)
    assert len(scores) == frames
    assert scores[0].motion2 == 0


def test_libvmaf_agrees_at_12_bit(model: Model, tmp_path: Path) -> None:
    check(clips.pair(clips.panning, clips.grain, size=SIZE, frames=2, bit_depth=12), model, tmp_path)


@pytest.mark.parametrize("bit_depth", BIT_DEPTHS)
@pytest.mark.parametrize("name", ["vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"])
def test_libvmaf_agrees_for_the_other_models(name: str, bit_depth: int, tmp_path: Path) -> None:
    check(
        clips.pair(clips.panning, clips.sharpened, size=SIZE, frames=3, bit_depth=bit_depth),
        load(FFMPEG, name),
        tmp_path,
    )


def test_libvmaf_agrees_for_the_phone_model(tmp_path: Path) -> None:
    pair = clips.pair(clips.panning, clips.blur, size=SIZE, frames=3, bit_depth=8)
    phone = load(FFMPEG, "vmaf_v0.6.1", enable_transform=True)
    check(pair, phone, tmp_path, options=r"\\:enable_transform=true")


def test_identical_frames_have_vif_and_adm_of_1() -> None:
    plane = clips.texture(np.random.default_rng(1), 144, 256)
    assert vif(plane, plane, 100) == pytest.approx((1, 1, 1, 1), abs=1e-4)
    assert adm2(plane, plane, 100) == pytest.approx(1, abs=1e-4)


def test_neg_gives_no_credit_for_contrast_enhancement() -> None:
    before = clips.texture(np.random.default_rng(1), 144, 256) / 2 + 50
    after = before * 1.25
    assert all(value > 1 for value in vif(before, after, 100))
    assert all(value < 1 for value in vif(before, after, 1))
    assert adm2(before, after, 1) < 1 < adm2(before, after, 100)


def test_stills_and_cuts_between_stills_have_no_motion() -> None:
    one, other = np.full(SIZE, 60.0), np.full(SIZE, 190.0)
    assert motion2([one, one, one]) == [0, 0, 0]
    assert motion2([one, one, other, other]) == [0, 0, 0, 0]
    assert motion2([one, other]) == [0, pytest.approx(130)]


def test_an_unknown_model_is_an_error() -> None:
    with pytest.raises(UnknownModel, match="vmaf_v9"):
        load(FFMPEG, "vmaf_v9")
