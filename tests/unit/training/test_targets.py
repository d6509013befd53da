"""What is learned from samples with and without a human score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.samples import SampleBatch, make_batch
from vmafx.training.targets import HUMAN_WEIGHT, labelled_frames

SCORES = st.floats(0, 100, width=32)


def batch(scores: list[float]) -> SampleBatch:
    columns = {name: [number / 10] * len(scores) for number, name in enumerate(MODEL_FEATURES)}
    made = make_batch("vmaf_v0.6.1", range(len(scores)), {**columns, "vmaf": scores})
    assert made is not None
    return made


@given(st.lists(SCORES, min_size=1, max_size=20))
def test_without_a_human_score_the_teacher_is_learned(scores: list[float]) -> None:
    frames = labelled_frames(batch(scores))
    assert frames.targets.tolist() == scores
    assert frames.weights.tolist() == [1.0] * len(scores)
    assert frames.features == pytest.approx(np.tile(np.arange(6) / 10, (len(scores), 1)), abs=1e-6)


@given(st.lists(SCORES, min_size=1, max_size=20), SCORES)
def test_a_human_score_shifts_all_frames_within_the_limits(scores: list[float], human: float) -> None:
    frames = labelled_frames(batch(scores), human)
    shift = human - np.mean(scores)
    assert frames.targets == pytest.approx(np.clip(np.array(scores) + shift, 0, 100), abs=1e-9)
    assert set(frames.weights) == {HUMAN_WEIGHT}
