"""Online learning: stochastic gradient descent (SGD) with momentum, and an exponential moving average of the weights.

For each batch, with the gradient g of the weighted mean squared error at the weights p,

    velocity <- MOMENTUM velocity - learning_rate g min(1, MAX_GRADIENT / |g|)
    p        <- p + velocity
    average  <- average + (1 - ema_decay) (p - average)

The average starts as the base model, so it needs no correction. It is what is evaluated and published.

A Learner is deterministic: the same calls, also after `restore`, lead to the same weights, bit by bit, on the same
machine. It has no clock, no randomness and no I/O.
"""

import math

import numpy as np

from vmafx.scoring.learned import LearnedModel
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.divergence import LossComparison
from vmafx.training.held_out import HeldOutWindow, quality
from vmafx.training.learner_state import (
    AVERAGE,
    LIVE,
    REFERENCE,
    VELOCITY,
    LearnerState,
    decode_state,
    encode_state,
)
from vmafx.training.network import (
    INPUTS,
    MIN_DEVIATION,
    POINTS,
    Array,
    Backpropagation,
    Normalisation,
    predict,
    scores,
    to_model,
)
from vmafx.training.shuffle_buffer import ShuffleBuffer
from vmafx.training.status import Quality

MOMENTUM = 0.9
MAX_GRADIENT = 1.0  # norm; a batch of predictions that are wrong by 10 points has about 0.5
COMPARE_EVERY = 8  # steps; every step at first, since the next checkpoint may be near
EARLY_ROWS = 1600
COMPARE_ROWS = 512  # of a batch
RECOVERY = 2.0  # factor of the learning rate
RECOVER_AFTER = 10  # checkpoints without a divergence
NORMALISE_EVERY = 10_000  # samples
NORMALISE_OVER = 100_000  # samples: older ones lose weight


class Learner:
    """A model in training."""

    def __init__(self, start: StartingModel | LearnerState, config: TrainingConfig) -> None:
        state = start if isinstance(start, LearnerState) else LearnerState.initial(start, config)
        if state.configured_rate != config.learning_rate:
            state.configured_rate = state.learning_rate = config.learning_rate
        self._state, self._config = state, config
        self._window = HeldOutWindow(state.held_out)
        self._buffer = ShuffleBuffer(state.pending, config.batch_size)
        self._live, self._velocity, self._average = (state.weights[row] for row in (LIVE, VELOCITY, AVERAGE))
        self._gradient = np.zeros_like(self._live)
        self._backpropagation = Backpropagation(self._live, self._gradient, config.batch_size)

    @classmethod
    def restore(cls, content: bytes, config: TrainingConfig) -> "Learner":
        """The Learner whose `state` this is. If the config has a new learning rate, it takes effect."""
        return cls(decode_state(content), config)

    @property
    def samples(self) -> int:
        """The number of samples that were trained on."""
        return self._state.trained

    @property
    def pending(self) -> int:
        """The number of samples that wait in the buffer."""
        return len(self._buffer.rows)

    @property
    def held_out(self) -> int:
        """The number of samples that the quality is measured on."""
        return len(self._window)

    @property
    def learning_rate(self) -> float:
        """The rate in force."""
        return self._state.learning_rate

    @property
    def rollbacks(self) -> int:
        return self._state.rollbacks

    @property
    def base_error(self) -> float | None:
        """Root mean square error of the distilled base model, in points of score."""
        return self._state.base_error

    def learn(self, features: Array, targets: Array, weights: Array) -> None:
        """Train on rows of features with targets from 0 to 100. Some samples wait for later calls."""
        begin, state = 0, self._state
        while begin < len(features):
            begin += self._buffer.add(features[begin:], targets[begin:], weights[begin:], state.trained)
            if (rows := self._buffer.take(state.trained)) is not None:
                self._train(rows)

    def _train(self, rows: Array) -> None:
        """Train on whole batches."""
        state, size = self._state, self._config.batch_size
        inputs, targets = state.normalisation.inputs(rows[:, :-2]), rows[:, -2] / POINTS
        weights = rows[:, -1] * (2.0 / size)  # of the gradient of a mean of squares
        for begin in range(0, len(rows), size):
            batch = slice(begin, begin + size)
            self._step(inputs[batch], targets[batch], weights[batch])
        state.moments += inputs.T @ inputs
        before, state.trained = state.trained, state.trained + len(rows)
        if state.trained // NORMALISE_EVERY > before // NORMALISE_EVERY:
            self._update_normalisation()

    def _step(self, inputs: Array, targets: Array, weights: Array) -> None:
        state, gradient = self._state, self._gradient
        live, velocity, average = self._live, self._velocity, self._average
        self._backpropagation.run(inputs, targets, weights)
        state.steps += 1
        if state.comparison.rows < EARLY_ROWS or not state.steps % COMPARE_EVERY:
            self._compare(inputs[:COMPARE_ROWS], targets[:COMPARE_ROWS], weights[:COMPARE_ROWS])
        norm = math.sqrt(gradient.dot(gradient))
        rate = state.learning_rate * (MAX_GRADIENT / norm if norm > MAX_GRADIENT else 1.0)
        np.multiply(velocity, MOMENTUM, out=velocity)
        np.multiply(gradient, rate, out=gradient)
        np.subtract(velocity, gradient, out=velocity)
        np.add(live, velocity, out=live)
        np.subtract(live, average, out=gradient)
        np.multiply(gradient, 1.0 - self._config.ema_decay, out=gradient)
        np.add(average, gradient, out=average)

    def _compare(self, inputs: Array, targets: Array, weights: Array) -> None:
        """Compare the errors of the live weights, which were just computed, with those of the last checkpoint."""
        live = self._backpropagation.errors[: len(inputs)]
        predictions = predict(self._state.weights[REFERENCE], inputs)
        reference = np.minimum(np.maximum(predictions, 0.0), 1.0) - targets
        shares = weights * (POINTS**2 / weights.sum())
        self._state.comparison.add(float(shares @ live**2), float(shares @ reference**2), len(inputs))

    def _update_normalisation(self) -> None:
        """Normalise with the latest statistics, without changing what any of the weights computes."""
        state, old, count = self._state, self._state.normalisation, float(self._state.moments[-1, -1])
        mean = state.moments[-1, :-1] / count
        variance = np.maximum(np.diag(state.moments)[:-1] / count - mean**2, 0.0)
        deviation = np.maximum(old.deviation * np.sqrt(variance), MIN_DEVIATION)
        new = Normalisation(old.mean + old.deviation * mean, deviation)
        old.convert(state.weights, new)
        state.normalisation, state.moments = new, np.eye(INPUTS) * min(count, NORMALISE_OVER)

    def flush(self) -> None:
        """Train on the samples that wait in the buffer, as far as they fill batches."""
        if (rows := self._buffer.take_all(self._state.trained)) is not None:
            self._train(rows)

    def hold_out(self, features: Array, targets: Array, clip: int) -> None:
        """Keep the samples of a clip to measure the quality with; they must not be trained on."""
        self._window.add(features, targets, clip)

    def quality(self) -> Quality:
        """How well the averaged weights predict the held-out samples."""
        inputs = self._state.normalisation.inputs(self._window.features)
        return quality(scores(self._state.weights[AVERAGE], inputs), self._window.targets)

    def model(self) -> LearnedModel:
        """The model with the averaged weights."""
        return to_model(self._state.weights[AVERAGE], self._state.normalisation, self._state.base)

    def divergence(self) -> str:
        """Why the training has diverged since the last checkpoint; empty if it has not."""
        finite = bool(np.isfinite(self._live).all())
        return self._state.comparison.problem() if finite else "a weight is not a finite number"

    def accept_checkpoint(self) -> None:
        """Measure divergence by the averaged weights of now. Call it at a checkpoint, before `state`.

        A learning rate that was lowered is raised again after RECOVER_AFTER checkpoints.
        """
        state = self._state
        state.weights[REFERENCE] = state.weights[AVERAGE]
        state.comparison = LossComparison()
        state.good_checkpoints += 1
        if not state.good_checkpoints % RECOVER_AFTER:
            state.learning_rate = min(state.learning_rate * RECOVERY, state.configured_rate)

    def rolled_back(self, good_state: bytes, factor: float = 0.5) -> "Learner":
        """A Learner that continues from the checkpoint of `good_state`, at the rate of now lowered by `factor`.

        It has everything of that state: the samples since then are to be learned again.
        """
        state = decode_state(good_state)
        state.configured_rate = self._state.configured_rate
        state.learning_rate = self._state.learning_rate * factor
        state.rollbacks, state.good_checkpoints = self._state.rollbacks + 1, 0
        for row in (LIVE, AVERAGE):
            state.weights[row] = state.weights[REFERENCE]
        state.weights[VELOCITY] = 0.0
        state.comparison = LossComparison()
        return Learner(state, self._config)

    def state(self) -> bytes:
        """Everything that `restore` needs to continue."""
        self._state.pending, self._state.held_out = self._buffer.rows, self._window.rows
        return encode_state(self._state)
