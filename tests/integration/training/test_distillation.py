"""The distilled model, compared with libvmaf on real frames."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import clips
from tests.oracle.clips import pair
from tests.oracle.libvmaf import score_clips
from tests.support.video import FFMPEG, SIZE
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.scoring.svr_model import embedded_model
from vmafx.training.distillation import distill

SCENES = (clips.panning, clips.hard_cut, clips.still, clips.gradients, clips.dark)
DISTORTIONS = (clips.unchanged, clips.grain, clips.banding, clips.blur, clips.rescaled, clips.less_contrast)


@pytest.mark.parametrize("name", ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"])
def test_a_distilled_model_scores_real_frames_as_libvmaf(name: str, tmp_path: Path) -> None:
    frames = [
        frame
        for scene, distortion in product(SCENES, DISTORTIONS)
        for frame in score_clips(
            FFMPEG,
            *pair(scene, distortion, size=SIZE, frames=6, bit_depth=8),
            tmp_path,
            model=f"version={name}",
        )
    ]
    columns = {feature: [getattr(frame, feature) for frame in frames] for feature in MODEL_FEATURES}
    scores = np.array([frame.score for frame in frames])
    base = embedded_model(name, FFMPEG)
    assert base.predict(np.array([columns[feature] for feature in MODEL_FEATURES]).T) == pytest.approx(scores, abs=1e-3)
    assert np.ptp(scores) > 50, "clips of all qualities"

    errors = np.array(distill(base).model.predict(columns)) - scores
    assert np.sqrt(np.mean(errors**2)) < 0.3
    assert np.abs(errors).max() < 2
