"""How well a Learner learns: known labels, noise, drift."""

from functools import cache

import numpy as np
import pytest

from tests.support.sample_streams import Stream, base, config, corrected, frames_of_clips, start
from vmafx.training.config import TrainingConfig
from vmafx.training.learner import Learner
from vmafx.training.network import Array

CHECKPOINT_EVERY = 20  # clips


@cache
def held_out() -> Array:
    """Frames of other clips."""
    return frames_of_clips(1500, seed=1000, frames=1)


def train(stream: Stream, settings: TrainingConfig, labels: Array) -> Learner:
    """Train clip by clip, with checkpoints; fails at a divergence."""
    learner = Learner(start(), settings)
    learner.hold_out(held_out(), labels, clip=1)
    for number, begin in enumerate(range(0, len(stream.targets), 300)):
        rows = slice(begin, begin + 300)
        learner.learn(stream.features[rows], stream.targets[rows], stream.weights[rows])
        assert not learner.divergence(), f"at clip {number}"
        if not number % CHECKPOINT_EVERY:
            learner.accept_checkpoint()
    return learner


def loss(learner: Learner) -> float:
    found = learner.quality().loss
    assert found is not None
    return found


@pytest.mark.parametrize("rate", [0.001, 0.01])
def test_labels_that_differ_by_a_known_function_are_learned(rate: float) -> None:
    features = frames_of_clips(300, seed=1)
    stream = Stream(features, corrected(features, base().predict(features)), np.ones(len(features)))
    base_scores = base().predict(held_out())
    labels = corrected(held_out(), base_scores)
    learner = train(stream, config(learning_rate=rate), labels)
    assert loss(learner) < 0.2 * float(np.mean((base_scores - labels) ** 2))


def test_on_noise_the_average_is_better_than_the_weights_in_training() -> None:
    """Without averaging (a decay of 0), the average is the weights in training: plain SGD."""
    stream = Stream.of_teacher(frames_of_clips(200, seed=2)).with_noise(seed=3)
    targets = base().predict(held_out())
    averaged, plain = (train(stream, config(learning_rate=0.01, ema_decay=decay), targets) for decay in (0.999, 0.0))
    assert loss(averaged) < 0.5 * loss(plain)
    assert loss(averaged) < 1.0


@pytest.mark.parametrize("batch_size", [1, 32, 256])
def test_noise_is_no_divergence(batch_size: int) -> None:
    stream = Stream.of_teacher(frames_of_clips(60, seed=4)).with_noise(seed=5, amplitude=40.0)
    learner = train(stream, config(batch_size=batch_size), base().predict(held_out()))
    assert loss(learner) < 10


def test_drift_is_followed_and_is_no_divergence() -> None:
    """Labels that fall by 20 points: slowly, and then by 20 points more at once."""
    stream = Stream.of_teacher(frames_of_clips(300, seed=6))
    fall = np.minimum(np.linspace(0, 60, len(stream.targets)), 20) + 20 * (np.arange(len(stream.targets)) > 60_000)
    drifted = stream._replace(targets=np.clip(stream.targets - fall, 0, 100))
    labels = np.clip(base().predict(held_out()) - 40, 0, 100)
    learner = train(drifted, config(), labels)
    assert loss(learner) < 0.1 * float(np.mean((base().predict(held_out()) - labels) ** 2))


def test_a_weight_of_ten_outweighs_the_teacher() -> None:
    """The same clips with two labels: what is learned is the mean by weight."""
    features = frames_of_clips(200, seed=7)
    scores = np.clip(base().predict(features), 10, 80)
    human = np.arange(len(features)) % 11 == 0
    targets = np.where(human, scores + 20, scores)
    learner = train(Stream(features, targets, np.where(human, 10.0, 1.0)), config(), base().predict(held_out()))
    predicted = learner.model().predict(
        {name: column.tolist() for name, column in zip(start().model.features, held_out().T, strict=True)}
    )
    inside = (base().predict(held_out()) > 20) & (base().predict(held_out()) < 70)
    assert np.mean((np.array(predicted) - base().predict(held_out()))[inside]) == pytest.approx(10, abs=2)
