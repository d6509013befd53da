"""The state of a Learner, and its encoding in MessagePack."""

from typing import Any, Literal

import msgspec
import numpy as np

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.config import TrainingConfig
from vmafx.training.distillation import StartingModel
from vmafx.training.divergence import LossComparison
from vmafx.training.held_out import COLUMNS as HELD_OUT_COLUMNS
from vmafx.training.network import INPUTS, Array, Normalisation, from_model, unit_count
from vmafx.training.shuffle_buffer import COLUMNS

LIVE, VELOCITY, AVERAGE, REFERENCE = range(4)  # rows of the weights
PRIOR_SAMPLES = 3000  # that the normalisation of the starting model counts as


class InvalidState(Exception):
    """The bytes are not the state of a Learner."""


class LearnerState(msgspec.Struct, kw_only=True, eq=False):
    """Everything that determines what a Learner does next."""

    base: str
    base_error: float | None
    weights: Array  # in training, their velocity, their average, and the average at the last checkpoint
    normalisation: Normalisation
    moments: Array  # sums of products of inputs; a multiple of the identity if these are normalised
    pending: Array  # features, target and weight of samples in the shuffle buffer
    held_out: Array  # features, target and clip
    comparison: LossComparison
    trained: int  # samples
    steps: int
    configured_rate: float
    learning_rate: float
    rollbacks: int
    good_checkpoints: int  # since the last rollback
    version: Literal[1] = 1

    @classmethod
    def initial(cls, start: StartingModel, config: TrainingConfig) -> "LearnerState":
        parameters, normalisation = from_model(start.model)
        return cls(
            base=start.model.base,
            base_error=start.rms_error,
            weights=np.stack([parameters, np.zeros_like(parameters), parameters, parameters]),
            normalisation=normalisation,
            moments=np.eye(INPUTS) * PRIOR_SAMPLES,
            pending=np.empty((0, COLUMNS)),
            held_out=np.empty((0, HELD_OUT_COLUMNS)),
            comparison=LossComparison(),
            trained=0,
            steps=0,
            configured_rate=config.learning_rate,
            learning_rate=config.learning_rate,
            rollbacks=0,
            good_checkpoints=0,
        )


class _PackedArray(msgspec.Struct, array_like=True):
    """Little-endian float64."""

    shape: tuple[int, ...]
    content: bytes


def encode_state(state: LearnerState) -> bytes:
    return msgspec.msgpack.encode(state, enc_hook=_pack)


def decode_state(content: bytes) -> LearnerState:
    """Raises InvalidState."""
    try:
        state = msgspec.msgpack.decode(content, type=LearnerState, dec_hook=_unpack)
        _check_shapes(state)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise InvalidState(f"not the state of a training: {error}") from error
    return state


def _check_shapes(state: LearnerState) -> None:
    if state.weights.ndim != 2 or len(state.weights) != 4:
        raise ValueError("the weights do not have four rows")
    unit_count(state.weights.shape[1])
    expected = {
        "mean": (state.normalisation.mean, (len(MODEL_FEATURES),)),
        "deviation": (state.normalisation.deviation, (len(MODEL_FEATURES),)),
        "moments": (state.moments, (INPUTS, INPUTS)),
        "pending": (state.pending, (len(state.pending), COLUMNS)),
        "held_out": (state.held_out, (len(state.held_out), HELD_OUT_COLUMNS)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape}, not {shape}")


def _pack(value: Any) -> _PackedArray:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"a {type(value).__name__} is not part of a state")
    return _PackedArray(value.shape, value.astype("<f8").tobytes())


def _unpack(_: type, value: Any) -> Array:
    packed = msgspec.convert(value, _PackedArray)
    return np.frombuffer(packed.content, "<f8").astype(np.float64).reshape(packed.shape)
