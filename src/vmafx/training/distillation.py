"""Distillation: a network that computes nearly the same scores as a support vector regression.

The network is fitted to the scores that the regression gives to features like those of real clips: between its support
vectors, which are clips that it was trained on, around them, and towards frames without any loss and with nothing left.
The fit minimises the mean squared error with Levenberg-Marquardt: with the residuals r and their Jacobian J,

    step = -(J'J + ridge + damping diag(J'J))^-1 (J'r + ridge parameters),

with less damping after each step that lowers the error, and more after one that does not. It is seeded: the same model
gives the same network.
"""

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.scoring.svr_model import SvrModel
from vmafx.training.network import (
    INPUTS,
    MIN_DEVIATION,
    POINTS,
    Array,
    Normalisation,
    from_model,
    predict,
    scores,
    to_model,
)

UNITS = 16
POINTS_TO_FIT = 4000
STEPS = 150
RIDGE = 1e-7  # keeps the parameters small, so that they can be trained further
MAX_DAMPING = 1e8
MAX_TARGET = 10.0  # 1000 points; those of libvmaf reach 1.5

# Ranges of the features of frames that can occur; contrast enhancement gives more than 1.
LOWEST = np.zeros(len(MODEL_FEATURES))
HIGHEST = np.array([1.3, 40.0, 1.4, 1.3, 1.3, 1.3])
LOSSLESS = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
MOTION = MODEL_FEATURES.index("motion2")


class StartingModel(msgspec.Struct, frozen=True):
    """The model that a training starts from, and its errors in points of score, if it was distilled."""

    model: LearnedModel
    rms_error: float | None = None  # root mean square on points that were not fitted
    max_error: float | None = None


def distill(base: SvrModel, seed: int = 0) -> StartingModel:
    """The network for a base model. Takes a second or two. Raises BadInput if the scores of the model make no sense."""
    with threadpool_limits(1, "blas"):  # more threads gain nothing here, and would round differently
        rng = np.random.default_rng(seed)
        features, held_out = (plausible_features(base, POINTS_TO_FIT, rng) for _ in range(2))
        normalisation = Normalisation(features.mean(axis=0), np.maximum(features.std(axis=0), MIN_DEVIATION))
        targets = base.raw_scores(features) / POINTS
        if np.abs(targets).max() > MAX_TARGET:
            raise BadInput("model", "its scores of ordinary features are far from 0 to 100")
        parameters = _fit(_random_parameters(rng), normalisation.inputs(features), targets)
        errors = scores(parameters, normalisation.inputs(held_out)) - base.predict(held_out)
    return StartingModel(
        to_model(parameters, normalisation, base.engine_model),
        rms_error=float(np.sqrt(np.mean(errors**2))),
        max_error=float(np.abs(errors).max()),
    )


def continue_from(model: LearnedModel) -> StartingModel:
    """Start from a learned model as it is. Raises BadInput if it is for other features."""
    parameters, normalisation = from_model(model)
    return StartingModel(to_model(parameters, normalisation, model.base))


def plausible_features(base: SvrModel, count: int, rng: np.random.Generator) -> Array:
    """Random features of frames as the base model knows them from its training, and somewhat beyond."""
    known = base.support_vectors()
    first, second = known[rng.integers(len(known), size=(2, count))]
    features = first + rng.uniform(-0.3, 1.3, (count, 1)) * (second - first)
    motion = features[:, MOTION] * rng.choice([0.0, 1.0, 2.0], count, p=[0.1, 0.7, 0.2])
    direction = rng.random((count, 1))
    share = rng.uniform(0.0, 1.15, (count, 1))
    features += np.where(direction < 0.35, share * (LOSSLESS - features), 0.0)
    features -= np.where(direction > 0.80, 0.8 * share * features, 0.0)
    noise = rng.normal(size=features.shape) * np.ptp(known, axis=0)
    features += noise * rng.choice([0.0, 0.03, 0.1], (count, 1))
    features[:, MOTION] = motion
    return np.asarray(np.clip(features, LOWEST, HIGHEST))


def _random_parameters(rng: np.random.Generator) -> Array:
    hidden = rng.normal(size=UNITS * INPUTS) * 0.5
    return np.concatenate([hidden, rng.normal(size=UNITS) * 0.1, [0.5]])


def _fit(parameters: Array, inputs: Array, targets: Array) -> Array:
    damping = 1e-2
    ridge = RIDGE * len(targets)

    def cost(parameters: Array) -> float:
        residuals = predict(parameters, inputs) - targets
        return float(residuals @ residuals + ridge * (parameters @ parameters))

    lowest = cost(parameters)
    for _ in range(STEPS):
        jacobian = _jacobian(parameters, inputs)
        curvature = jacobian.T @ jacobian + ridge * np.eye(len(parameters))
        slope = jacobian.T @ (predict(parameters, inputs) - targets) + ridge * parameters
        while damping < MAX_DAMPING:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
            if (reached := cost(parameters - step)) < lowest:
                parameters, lowest, damping = parameters - step, reached, damping / 3
                break
            damping *= 3
    return parameters


def _jacobian(parameters: Array, inputs: Array) -> Array:
    """The derivatives of each prediction by each parameter."""
    split = UNITS * INPUTS
    activations = np.tanh(inputs @ parameters[:split].reshape(UNITS, INPUTS).T)
    slopes = (1 - activations**2) * parameters[split:-1]
    hidden = (slopes[:, :, None] * inputs[:, None, :]).reshape(len(inputs), split)
    return np.concatenate([hidden, activations, np.ones((len(inputs), 1))], axis=1)
