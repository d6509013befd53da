"""What to learn from the samples of a clip: features, target scores and weights.

Without a human score, the target of a frame is the score that the teacher gave it. With one, all frames are shifted by
the difference: with the human score H of the clip and the mean S of the teacher's scores, the target of a frame is its
score + (H - S), limited to 0 to 100, and it counts HUMAN_WEIGHT times.
"""

from typing import NamedTuple

import numpy as np

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.network import Array
from vmafx.training.samples import SCORE_LIMITS, SampleBatch

HUMAN_WEIGHT = 10.0


class LabelledFrames(NamedTuple):
    """Rows of features, in the order of MODEL_FEATURES, with a target (0 to 100) and a weight each."""

    features: Array
    targets: Array
    weights: Array


def labelled_frames(batch: SampleBatch, human_score: float | None = None) -> LabelledFrames:
    """The frames of a batch that was checked."""
    rows = np.frombuffer(batch.values, "<f4").reshape(-1, len(MODEL_FEATURES) + 1).astype(np.float64)
    features, targets = rows[:, :-1], rows[:, -1]
    if human_score is None:
        return LabelledFrames(features, targets, np.ones(len(rows)))
    shifted = np.clip(targets + (human_score - targets.mean()), *SCORE_LIMITS)
    return LabelledFrames(features, shifted, np.full(len(rows), HUMAN_WEIGHT))
