"""Features and scores compared with libvmaf and with the oracle, frame by frame."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.gpu.conftest import ON_DEVICE
from tests.gpu.measuring import Kind, features_of
from tests.oracle import clips
from tests.oracle.clips import Clip, Distortion, Scene
from tests.oracle.libvmaf import score_clips
from tests.oracle.model import load
from tests.oracle.score import score_frames
from tests.support.video import FFMPEG
from tests.unit.oracle.test_oracle import KINDS, label
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.scoring.svr_model import SvrModel, embedded_model

RELATIVE, ABSOLUTE, SCORE = 1e-4, 1e-6, 0.01
MODELS = ("vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1")
# In narrower frames, the last column of the coarse scales of ADM counts much, in which the AVX2 code of libvmaf 2.3
# differs from its C code.
PLAIN_SIZE, INTERPRETED_SIZE = (256, 144), (256, 48)
DEVICE_SIZES = [(256, 144), (640, 360), (1280, 720)]
CASES: list[tuple[Kind, tuple[int, int]]] = [("plain", PLAIN_SIZE)]
CASES += [("kernels", size) for size in (DEVICE_SIZES if ON_DEVICE else [INTERPRETED_SIZE])]
LARGE: list[tuple[Kind, tuple[int, int]]] = [("plain", (640, 360))]
if ON_DEVICE:
    LARGE = [("kernels", (1920, 1080)), ("kernels", (3840, 2160))]
FRAMES = 6 if ON_DEVICE else 3
pytestmark = pytest.mark.timeout(900)  # the interpreter takes a second or more for a kernel


@cache
def model(name: str) -> SvrModel:
    return embedded_model(name, FFMPEG)


def measured(kind: Kind, pair: tuple[Clip, Clip], name: str, device: torch.device) -> dict[str, np.ndarray]:
    """The features and the score of every frame."""
    features = features_of(kind, pair, model(name).gain_limit, device)
    score = model(name).predict(np.column_stack([features[feature] for feature in MODEL_FEATURES]))
    return {feature: features[feature] for feature in MODEL_FEATURES} | {"score": score}


def by_libvmaf(pair: tuple[Clip, Clip], name: str, folder: Path) -> dict[str, np.ndarray]:
    frames = score_clips(FFMPEG, *pair, folder, model=f"version={name}")
    return {field: np.array([getattr(frame, field) for frame in frames]) for field in (*MODEL_FEATURES, "score")}


def assert_agreement(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    for name, expected in theirs.items():
        relative, absolute = (0.0, SCORE) if name == "score" else (RELATIVE, ABSOLUTE)
        np.testing.assert_allclose(ours[name], expected, relative, absolute, err_msg=name)


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize(("method", "size"), CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=label)
def test_every_kind_of_clip(
    kind: tuple[Scene, Distortion], method: Kind, size: tuple[int, int], bit_depth: int, device: torch.device,
    tmp_path: Path,
) -> None:  # fmt: skip
    pair = clips.pair(*kind, size=size, frames=FRAMES, bit_depth=bit_depth)
    assert_agreement(measured(method, pair, MODELS[0], device), by_libvmaf(pair, MODELS[0], tmp_path))


@pytest.mark.parametrize(
    ("distortion", "bit_depth"),
    [(clips.sharpened, 8), (clips.more_contrast, 8), (clips.blur, 8), (clips.sharpened, 10)],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
@pytest.mark.parametrize(("method", "size"), CASES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_model(
    name: str, method: Kind, size: tuple[int, int], distortion: Distortion, bit_depth: int, device: torch.device,
    tmp_path: Path,
) -> None:  # fmt: skip
    pair = clips.pair(clips.panning, distortion, size=size, frames=FRAMES, bit_depth=bit_depth)
    assert_agreement(measured(method, pair, name, device), by_libvmaf(pair, name, tmp_path))


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize(("method", "size"), LARGE, ids=str)
def test_large_frames(
    method: Kind, size: tuple[int, int], bit_depth: int, device: torch.device, tmp_path: Path
) -> None:
    pair = clips.pair(clips.panning, clips.blur, size=size, frames=3, bit_depth=bit_depth)
    assert_agreement(measured(method, pair, MODELS[0], device), by_libvmaf(pair, MODELS[0], tmp_path))


@pytest.mark.parametrize("bit_depth", [10, 12, 16])
@pytest.mark.parametrize("size", [(97, 65), (130, 71), (333, 181)], ids=str)
def test_odd_sizes_and_high_bit_depths(
    size: tuple[int, int], bit_depth: int, device: torch.device, tmp_path: Path
) -> None:
    """libvmaf 2.3 reads beyond its buffers where the width of 8-bit frames is not a multiple of 16."""
    pair = clips.pair(clips.panning, clips.blur, size=size, frames=FRAMES, bit_depth=bit_depth)
    assert_agreement(measured("plain", pair, MODELS[0], device), by_libvmaf(pair, MODELS[0], tmp_path))


@pytest.mark.parametrize("bit_depth", [8, 10])
@pytest.mark.parametrize("size", [(96, 64), (97, 65)], ids=str)
@pytest.mark.parametrize("method", ["plain", "kernels"])
def test_the_oracle_agrees(method: Kind, size: tuple[int, int], bit_depth: int, device: torch.device) -> None:
    """The oracle is floating-point: it knows nothing of the roundings that the engine shares with libvmaf."""
    reference, distorted = pair = clips.pair(clips.panning, clips.blur, size=size, frames=3, bit_depth=bit_depth)
    ours = measured(method, pair, MODELS[0], device)
    frames = score_frames(reference.planes, distorted.planes, bit_depth, load(FFMPEG, MODELS[0]))
    for feature in MODEL_FEATURES:
        np.testing.assert_allclose(
            ours[feature], [getattr(frame, feature) for frame in frames], 0, 1e-3, err_msg=feature
        )
    np.testing.assert_allclose(ours["score"], [frame.score for frame in frames], 0, 0.05)
