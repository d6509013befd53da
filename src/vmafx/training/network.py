"""The network of a learned model, for training: all parameters in one vector, and few calls of numpy per step.

With k features and h hidden units, the vector has the rows (W, b) of the hidden units, then v and c of the output; see
scoring/learned.py for the function. It predicts a score divided by 100, which is limited to 0 to 1. For the gradient
the limits count as the identity: a prediction beyond a limit has the error of the limit itself, so that nothing is
learned from a score of 100 that is predicted as 103, and a score of 90 still lowers it.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.result import MODEL_FEATURES

Array = NDArray[np.float64]

POINTS = 100.0  # of score, per unit of prediction
INPUTS = len(MODEL_FEATURES) + 1  # the last one is always 1
MAX_UNITS = 256
MIN_DEVIATION = 0.01  # of a feature that hardly varies


class Normalisation(msgspec.Struct, frozen=True, eq=False):
    """Mean and deviation of each feature."""

    mean: Array
    deviation: Array

    def inputs(self, features: Array) -> Array:
        """The inputs of the network: normalised features, and 1 for the bias."""
        result = np.ones((len(features), INPUTS))
        np.subtract(features, self.mean, out=result[:, :-1])
        result[:, :-1] /= self.deviation
        return result

    def convert(self, parameters: Array, new: "Normalisation") -> None:
        """Change rows of parameters in place so that they compute the same from `new` inputs.

        W' = W s'/s and b' = b + W (m' - m)/s. This is linear in the parameters, so it also converts their velocity.
        """
        units = unit_count(parameters.shape[-1])
        hidden = parameters[..., : units * INPUTS].reshape(*parameters.shape[:-1], units, INPUTS)
        hidden[..., -1] += hidden[..., :-1] @ ((new.mean - self.mean) / self.deviation)
        hidden[..., :-1] *= new.deviation / self.deviation


def parameter_count(units: int) -> int:
    return units * (INPUTS + 1) + 1


def unit_count(parameters: int) -> int:
    """The number of hidden units of a network with so many parameters."""
    units = (parameters - 1) // (INPUTS + 1)
    if units < 1 or parameter_count(units) != parameters:
        raise ValueError(f"no network has {parameters} parameters")
    return units


def predict(parameters: Array, inputs: Array) -> Array:
    """The predictions of a network without limits."""
    hidden = unit_count(len(parameters)) * INPUTS
    activations = np.tanh(inputs @ parameters[:hidden].reshape(-1, INPUTS).T)
    return np.asarray(activations @ parameters[hidden:-1] + parameters[-1])


def scores(parameters: Array, inputs: Array) -> Array:
    """The predicted scores, 0 to 100."""
    return np.clip(POINTS * predict(parameters, inputs), 0.0, POINTS)


class Backpropagation:
    """Computes the gradient of sum(weight * error^2) / 2 over a batch of fixed size, in buffers that are kept."""

    def __init__(self, parameters: Array, gradient: Array, batch_size: int) -> None:
        """`parameters` is read and `gradient` is written by `run`."""
        units = unit_count(len(parameters))
        split = units * INPUTS
        self._hidden, self._hidden_gradient = (flat[:split].reshape(units, INPUTS) for flat in (parameters, gradient))
        self._output, self._output_gradient = parameters[split:], gradient[split:]
        self._output_column = parameters[split:-1, None]
        # Activations by unit and sample, with a unit that is always 1 for the offset of the output.
        self._activations = np.ones((units + 1, batch_size))
        self._active = self._activations[:-1]
        self._slopes = np.empty((units, batch_size))
        self.errors = np.empty(batch_size)  # of the latest run
        self._weighted_errors = np.empty(batch_size)

    def run(self, inputs: Array, targets: Array, weights: Array) -> None:
        active, slopes, errors = self._active, self._slopes, self.errors
        weighted_errors = self._weighted_errors
        np.dot(self._hidden, inputs.T, out=active)
        np.tanh(active, out=active)
        np.dot(self._output, self._activations, out=errors)
        np.maximum(errors, 0.0, out=errors)
        np.minimum(errors, 1.0, out=errors)
        np.subtract(errors, targets, out=errors)
        np.multiply(errors, weights, out=weighted_errors)
        np.dot(self._activations, weighted_errors, out=self._output_gradient)
        np.multiply(active, active, out=slopes)
        np.subtract(1.0, slopes, out=slopes)
        np.multiply(slopes, weighted_errors, out=slopes)
        np.dot(slopes, inputs, out=self._hidden_gradient)
        np.multiply(self._hidden_gradient, self._output_column, out=self._hidden_gradient)


def from_model(model: LearnedModel) -> tuple[Array, Normalisation]:
    """The parameters of a learned model. Raises BadInput if it is for other features or too large."""
    if sorted(model.features) != sorted(MODEL_FEATURES):
        raise BadInput("model", f"a training starts from a model with the features {', '.join(MODEL_FEATURES)}")
    if len(model.hidden) > MAX_UNITS:
        raise BadInput("model", f"a training starts from a model with at most {MAX_UNITS} hidden units")
    order = [model.features.index(name) for name in MODEL_FEATURES]
    hidden = np.column_stack([np.array(model.hidden)[:, order], model.bias])
    parameters = np.concatenate([hidden.ravel(), model.output, [model.offset]])
    return parameters, Normalisation(np.array(model.mean)[order], np.array(model.deviation)[order])


def to_model(parameters: Array, normalisation: Normalisation, base: str) -> LearnedModel:
    units = unit_count(len(parameters))
    hidden = parameters[: units * INPUTS].reshape(units, INPUTS)
    return LearnedModel(
        base=base,
        features=MODEL_FEATURES,
        mean=tuple(normalisation.mean.tolist()),
        deviation=tuple(normalisation.deviation.tolist()),
        hidden=tuple(map(tuple, hidden[:, :-1].tolist())),
        bias=tuple(hidden[:, -1].tolist()),
        output=tuple(parameters[units * INPUTS : -1].tolist()),
        offset=float(parameters[-1]),
    )
