"""A learned model: a small neural network on the elementary features that an engine yields.

libvmaf reads only its own models, so vmafx predicts itself, in the same way for every engine. The network has one
hidden layer: with the features x, their normalisation (mean m, deviation s), and weights W, b, v, c,

    score = 100 * (v . tanh(W (x - m) / s + b) + c), limited to 0 to 100.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput
from vmafx.scoring.result import Column

FORMAT = "vmafx.model/v1"
MAX_FEATURES = 64
MAX_UNITS = 256  # with these limits, a frame takes at most some milliseconds


class LearnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The network, and the model whose features it needs."""

    base: str  # the built-in model whose features the engine computes
    features: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    hidden: tuple[tuple[float, ...], ...]  # W: a row per hidden unit
    bias: tuple[float, ...]  # b
    output: tuple[float, ...]  # v
    offset: float  # c
    format: str = FORMAT

    def predict(self, values: Mapping[str, Sequence[float]]) -> Column:
        """The score of every frame."""
        scaled = [
            _scaled(values[name], mean, deviation)
            for name, mean, deviation in zip(self.features, self.mean, self.deviation, strict=True)
        ]
        units = list(zip(self.hidden, self.bias, self.output, strict=True))
        return array(
            "d",
            (
                min(max(100.0 * (self.offset + sum(self._unit(unit, row) for unit in units)), 0.0), 100.0)
                for row in zip(*scaled, strict=True)
            ),
        )

    @staticmethod
    def _unit(unit: tuple[tuple[float, ...], float, float], row: tuple[float, ...]) -> float:
        weights, bias, output = unit
        return output * math.tanh(math.fsum(map(float.__mul__, weights, row)) + bias)


def _scaled(values: Sequence[float], mean: float, deviation: float) -> Iterator[float]:
    return ((value - mean) / deviation for value in values)


def predict_scores(model: LearnedModel, values: Mapping[str, Sequence[float]], name: str) -> Column:
    """The score of every frame. Raises BadInput if a feature is missing, or the weights yield no number."""
    missing = [feature for feature in model.features if feature not in values]
    if missing:
        raise BadInput("model", f"{name} needs the feature {missing[0]}, which its base {model.base} does not have")
    try:
        scores = model.predict(values)
    except (ArithmeticError, ValueError):  # infinite intermediate results
        scores = array("d", [math.nan])
    if not all(map(math.isfinite, scores)):
        raise BadInput("model", f"{name} yields scores that are not numbers; its weights are unusable")
    return scores


class _Format(msgspec.Struct):
    format: str = ""


def is_learned(content: bytes) -> bool:
    """Whether the content is a learned model of any version, not one of libvmaf."""
    try:
        return msgspec.json.decode(content, type=_Format).format.startswith("vmafx.model/")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def encode_model(model: LearnedModel) -> bytes:
    """The same bytes for the same model, so that its digest identifies it."""
    return msgspec.json.encode(model)


def decode_model(content: bytes, name: str) -> LearnedModel:
    """Raises BadInput if the content is not a learned model that can predict."""
    try:
        version = msgspec.json.decode(content, type=_Format).format
        if version != FORMAT:
            raise BadInput("model", f"{name} has the format {version!r}; this version of vmafx reads {FORMAT}")
        model = msgspec.json.decode(content, type=LearnedModel)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("model", f"{name} is not a learned model: {error}") from error
    if model.base not in BUILT_IN_MODELS:  # any other name could make the reader open a file or a URI
        raise BadInput("model", f"{name} has the base {model.base[:100]!r}, which is not {', '.join(BUILT_IN_MODELS)}")
    inputs, units = len(model.features), len(model.hidden)
    if not 0 < inputs <= MAX_FEATURES or not 0 < units <= MAX_UNITS:
        raise BadInput(
            "model",
            f"{name} has {inputs} features and {units} hidden units; the limits are {MAX_FEATURES}, {MAX_UNITS}",
        )
    if {len(model.mean), len(model.deviation), *map(len, model.hidden)} != {inputs}:
        raise BadInput("model", f"{name} is unusable: its weights do not match its {inputs} features")
    if {len(model.bias), len(model.output)} != {units}:
        raise BadInput("model", f"{name} is unusable: its weights do not match its {units} hidden units")
    weights = (model.mean, model.deviation, *model.hidden, model.bias, model.output, (model.offset,))
    if not all(map(math.isfinite, chain.from_iterable(weights))) or min(model.deviation) <= 0:
        raise BadInput("model", f"{name} has weights that are not finite numbers")
    return model
