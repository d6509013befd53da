"""The samples of one attempt: for every frame the elementary features of its model, and its score.

A worker makes them, the controller forwards them with their source, and a trainer stores them. They come from other
machines: `decode_batch` and `SampleBatch.check` accept nothing that could harm a training.
"""

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from vmafx.scoring.result import MODEL_FEATURES

MAX_SAMPLES = 300  # of a clip
MAX_BATCH_BYTES = 64 << 10
# By feature: adm2 and vif are 0 to 1, and more for enhanced clips; motion2 is a mean difference of 8-bit pixels.
FEATURE_LIMITS = {name: (-0.1, 256.0 if name == "motion2" else 2.0) for name in MODEL_FEATURES}
SCORE_LIMITS = (0.0, 100.0)


class InvalidSamples(Exception):
    """Samples that cannot be used; the message gives the reason."""


class SampleSource(msgspec.Struct, frozen=True):
    """Where samples come from, as the controller has verified it."""

    namespace: str
    node: str
    job: str  # uid of the VmafxJob
    attempt: str  # its controllerJobID
    human_score: float | None = None  # of the job, when the attempt was placed


class SampleBatch(msgspec.Struct, frozen=True):
    """The samples of one attempt: `values` has the MODEL_FEATURES of each frame, and then its score.

    Numbers are packed little-endian, since a batch is mostly numbers: uint32 frames, float32 values.
    """

    model: str  # the teacher: the name of the model that gave the scores
    frames: bytes
    values: bytes
    version: Literal[1] = 1

    @property
    def count(self) -> int:
        return len(self.frames) // 4

    def frame_numbers(self) -> "array[int]":
        return _unpack("I", self.frames)

    def rows(self) -> "array[float]":
        """The values of all frames, one after the other: len(MODEL_FEATURES) features and a score each."""
        return _unpack("f", self.values)

    def check(self) -> None:
        """Raise InvalidSamples unless every number is plausible."""
        columns = len(MODEL_FEATURES) + 1
        if not 0 < self.count <= MAX_SAMPLES or len(self.frames) % 4:
            raise InvalidSamples(f"a batch has 1 to {MAX_SAMPLES} samples, not {self.count}")
        if len(self.values) != 4 * columns * self.count:
            raise InvalidSamples(f"{self.count} samples need {4 * columns * self.count} bytes, not {len(self.values)}")
        frames = self.frame_numbers()
        if any(later <= earlier for earlier, later in pairwise(frames)):
            raise InvalidSamples("frame numbers do not increase")
        rows = self.rows()
        for column, name in enumerate((*MODEL_FEATURES, "score")):
            values = rows[column::columns]
            low, high = FEATURE_LIMITS.get(name, SCORE_LIMITS)
            if not all(low <= value <= high for value in values):  # false for NaN too
                raise InvalidSamples(f"{name} is outside of {low:g} to {high:g}")


class SamplePush(msgspec.Struct, frozen=True):
    """What the controller sends to a trainer: an encoded batch, and its source."""

    source: SampleSource
    batch: bytes


class SampleReceipt(msgspec.Struct, frozen=True):
    """A trainer's reply to a SamplePush, with status 200, as JSON: the batch is on its disk."""

    result: Literal["stored", "duplicate"]


class HumanScore(msgspec.Struct, frozen=True):
    """The human score of a job, which the operator sends to trainers."""

    job: str  # uid of the VmafxJob
    score: float

    def check(self) -> None:
        """Raise InvalidSamples for a score out of range."""
        if not SCORE_LIMITS[0] <= self.score <= SCORE_LIMITS[1]:
            raise InvalidSamples(f"the human score of a clip is {self.score:g}, not 0 to 100")


def make_batch(
    model: str, numbers: Sequence[int], values: Mapping[str, Sequence[float]], teacher: str = "vmaf"
) -> SampleBatch | None:
    """The samples of a scored clip: at most MAX_SAMPLES frames at equal distances. None if a feature is missing.

    `teacher` is the column with the scores of `model`.
    """
    columns = [values.get(name) for name in (*MODEL_FEATURES, teacher)]
    if not numbers or any(column is None for column in columns):
        return None
    step = math.ceil(len(numbers) / MAX_SAMPLES)
    frames, rows = array("I", numbers[::step]), array("f")
    for row in zip(*(column[::step] for column in columns if column is not None), strict=True):
        rows.extend(row)
    return SampleBatch(model, _pack(frames), _pack(rows))


def encode_batch(batch: SampleBatch) -> bytes:
    return msgspec.msgpack.encode(batch)


def decode_batch(content: bytes) -> SampleBatch:
    """Decode and check a batch. Raises InvalidSamples."""
    if len(content) > MAX_BATCH_BYTES:
        raise InvalidSamples(f"a batch has at most {MAX_BATCH_BYTES} bytes, not {len(content)}")
    try:
        batch = msgspec.msgpack.decode(content, type=SampleBatch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSamples(f"not a batch of samples: {error}") from error
    batch.check()
    return batch


def _pack(numbers: "array[int] | array[float]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _unpack(code: str, content: bytes) -> "array[Any]":
    numbers = array(code)
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
