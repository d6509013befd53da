"""Streams of samples for tests of learning: frames as those of real clips, and what their labels are."""

from functools import cache
from typing import NamedTuple

import numpy as np

from tests.support.video import FFMPEG
from vmafx.scoring.svr_model import SvrModel, embedded_model
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import HIGHEST, LOWEST, StartingModel, distill, plausible_features
from vmafx.training.network import Array

FRAMES = 300  # of a clip


@cache
def base() -> SvrModel:
    return embedded_model("vmaf_v0.6.1", FFMPEG)


@cache
def start() -> StartingModel:
    return distill(base())


def config(*, learning_rate: float = 0.001, ema_decay: float = 0.999, batch_size: int = 32) -> TrainingConfig:
    return TrainingConfig(
        name="test",
        namespace="default",
        base_model="vmaf_v0.6.1",
        learning_rate=learning_rate,
        ema_decay=ema_decay,
        batch_size=batch_size,
    )


def frames_of_clips(clips: int, seed: int, frames: int = FRAMES) -> Array:
    """The features of clips, one clip after the other; the frames of a clip are alike."""
    rng = np.random.default_rng(seed)
    middle = plausible_features(base(), clips, rng).repeat(frames, axis=0)
    spread = 0.05 * plausible_features(base(), 1000, rng).std(axis=0)
    return np.asarray(np.clip(middle + rng.normal(size=middle.shape) * spread, LOWEST, HIGHEST))


def corrected(features: Array, scores: Array) -> Array:
    """A known function that people might apply to scores: lower in the middle, more so with motion."""
    motion = 1 + 0.5 * np.tanh((features[:, 1] - 4) / 3)
    return np.asarray(np.clip(scores - 12 * motion * np.sin(np.pi * scores / 100), 0, 100))


class Stream(NamedTuple):
    """Samples in the order in which they come."""

    features: Array
    targets: Array
    weights: Array

    @classmethod
    def of_teacher(cls, features: Array) -> "Stream":
        return cls(features, base().predict(features), np.ones(len(features)))

    def with_noise(self, seed: int, amplitude: float = 15.0) -> "Stream":
        """Labels that are wrong at random, but right on average: the noise keeps them between 0 and 100."""
        room = np.minimum(amplitude, np.minimum(self.targets, 100 - self.targets))
        noise = np.random.default_rng(seed).uniform(-1, 1, len(self.targets))
        return self._replace(targets=self.targets + noise * room)
