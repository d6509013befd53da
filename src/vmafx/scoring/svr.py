"""The SVR models of VMAF, evaluated on features that were measured: what would the score be if a feature differed?

libvmaf computes scores. Here a model only answers questions about a report, and only after it has reproduced the scores
of that report. Built-in models are embedded in the ffmpeg program as JSON without names.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from vmafx.scoring.result import Column

Values = NDArray[np.float64]
START = re.compile(rb'\0\{\s*"param_dict"')
MAX_JSON = 32 << 20
_NAME = re.compile(r"VMAF_(?:integer_)?feature_(\w+)_score")
_PREFIXES = ("", "integer_", "float_")


class _ModelDict(msgspec.Struct):
    model: str
    model_type: str
    norm_type: str
    feature_names: Annotated[list[str], Meta(min_length=1, max_length=32)]
    slopes: list[float]
    intercepts: list[float]
    score_clip: tuple[float, float] = (-np.inf, np.inf)


class _ModelFile(msgspec.Struct):
    model_dict: _ModelDict


class SvrModel(msgspec.Struct, frozen=True):
    """A nu-SVR with an RBF kernel on rescaled features."""

    features: tuple[str, ...]  # such as adm2
    gamma: float
    rho: float
    weights: Values
    vectors: Values
    slopes: Values  # of the score, then of each feature
    intercepts: Values
    clip: tuple[float, float]

    @classmethod
    def decode(cls, content: bytes) -> "SvrModel":
        """Raises ValueError if it is no model of this type."""
        numbers = msgspec.json.decode(content, type=_ModelFile).model_dict
        if (numbers.model_type, numbers.norm_type) != ("LIBSVMNUSVR", "linear_rescale"):
            raise ValueError(f"a model of type {numbers.model_type}, {numbers.norm_type}")
        names = [_NAME.fullmatch(name) for name in numbers.feature_names]
        features = tuple(match[1] for match in names if match is not None)
        header, _, body = numbers.model.partition("\nSV\n")
        values = dict(line.split(maxsplit=1) for line in header.splitlines())
        if (values.get("svm_type"), values.get("kernel_type")) != ("nu_svr", "rbf"):
            raise ValueError("not a nu-SVR with an RBF kernel")
        weights, vectors = _vectors(body, len(features))
        if not len(numbers.feature_names) + 1 == len(features) + 1 == len(numbers.slopes) == len(numbers.intercepts):
            raise ValueError("the numbers of features, slopes and intercepts differ")
        return cls(
            features, float(values["gamma"]), float(values["rho"]), weights, vectors,
            np.array(numbers.slopes), np.array(numbers.intercepts), numbers.score_clip,
        )  # fmt: skip

    def predict(self, values: Values) -> Values:
        """The score of each row, whose columns are `features`."""
        scaled = values * self.slopes[1:] + self.intercepts[1:]
        squares = (scaled**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1)[None, :]
        distances = np.maximum(squares - 2 * scaled @ self.vectors.T, 0.0)
        answers = np.exp(-self.gamma * distances) @ self.weights - self.rho
        scores: Values = np.clip((answers - self.intercepts[0]) / self.slopes[0], *self.clip)
        return scores

    def columns(self, values: Mapping[str, Column]) -> list[str] | None:
        """The columns of a report that have the features; None if it lacks one."""
        found = [next((p + name for p in _PREFIXES if p + name in values), None) for name in self.features]
        return [name for name in found if name is not None] if None not in found else None


def _vectors(body: str, features: int) -> tuple[Values, Values]:
    rows = [line.split() for line in body.splitlines() if line.strip()]
    vectors = np.zeros((len(rows), features))
    for vector, row in zip(vectors, rows, strict=True):
        for entry in row[1:]:
            index, _, value = entry.partition(":")
            if not 1 <= int(index) <= features:
                raise ValueError(f"a support vector has feature {index} of {features}")
            vector[int(index) - 1] = float(value)
    return np.array([float(row[0]) for row in rows]), vectors


@lru_cache(2)
def embedded_models(program: Path) -> tuple[SvrModel, ...]:
    """The models in a program; none if it cannot be read or has libvmaf elsewhere."""
    try:
        return tuple(_found_in(program.read_bytes()))
    except OSError:
        return ()


def _found_in(binary: bytes) -> Iterator[SvrModel]:
    for match in START.finditer(binary):
        begin = match.start() + 1
        end = binary.find(b"\0", begin, begin + MAX_JSON)
        try:
            yield SvrModel.decode(binary[begin:end])
        except (ValueError, KeyError):  # a collection of models, or one of another type
            continue
