"""A learned model: a small neural network on the elementary features that an engine yields.

libvmaf reads only its own models, so vmafx predicts itself, in the same way for every engine. The network has one
hidden layer: with the features x, their normalisation (mean m, deviation s), and weights W, b, v, c,

    score = 100 * (v . tanh(W (x - m) / s + b) + c), limited to 0 to 100.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vmafx.scoring.errors import BadInput

FORMAT = "vmafx.model/v1"


class LearnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The network, and the model that it started from, whose features it needs."""

    base: str  # a built-in model of libvmaf: an engine computes the features that it is for
    features: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    hidden: tuple[tuple[float, ...], ...]  # W: a row per hidden unit
    bias: tuple[float, ...]  # b
    output: tuple[float, ...]  # v
    offset: float  # c
    format: str = FORMAT

    def predict(self, values: Mapping[str, Sequence[float]]) -> list[float]:
        """The score of every frame."""
        scaled = [
            [(value - mean) / deviation for value in values[name]]
            for name, mean, deviation in zip(self.features, self.mean, self.deviation, strict=True)
        ]
        units = list(zip(self.hidden, self.bias, self.output, strict=True))
        return [
            min(max(100.0 * (self.offset + sum(self._unit(unit, row) for unit in units)), 0.0), 100.0)
            for row in zip(*scaled, strict=True)
        ]

    @staticmethod
    def _unit(unit: tuple[tuple[float, ...], float, float], row: tuple[float, ...]) -> float:
        weights, bias, output = unit
        return output * math.tanh(math.fsum(map(float.__mul__, weights, row)) + bias)


def encode_model(model: LearnedModel) -> bytes:
    """The same bytes for the same model, so that its digest identifies it."""
    return msgspec.json.encode(model)


def decode_model(content: bytes, name: str) -> LearnedModel:
    """Raises BadInput if the content is not a learned model that can predict."""
    try:
        model = msgspec.json.decode(content, type=LearnedModel)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput("model", f"{name} is not a learned model: {error}") from error
    inputs, units = len(model.features), len(model.hidden)
    if model.format != FORMAT:
        raise BadInput("model", f"{name} has the format {model.format!r}; this version of vmafx reads {FORMAT}")
    if {len(model.mean), len(model.deviation), *map(len, model.hidden)} != {inputs}:
        raise BadInput("model", f"{name} has weights for another number of features than {inputs}")
    if not units or {len(model.bias), len(model.output)} != {units}:
        raise BadInput("model", f"{name} has weights for another number of hidden units than {units}")
    if not all(map(math.isfinite, _numbers(msgspec.to_builtins(model)))) or min(model.deviation) <= 0:
        raise BadInput("model", f"{name} has weights that are not finite numbers")
    return model


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list | tuple):
        items = value.values() if isinstance(value, dict) else value
        return [number for item in items for number in _numbers(item)]
    return [value] if isinstance(value, float) else []
