"""A VMAF model as libvmaf has it: a support vector regression (nu-SVR with an RBF kernel) on rescaled features.

With the features x, the slopes and intercepts of the file, and support vectors z_i with weights a_i,

    r     = sum_i a_i exp(-gamma |slope x + intercept - z_i|^2) - rho
    score = (r - intercept_0) / slope_0, limited to score_clip.

A model comes from a JSON file, or from the engine: libvmaf embeds its models as JSON in the binary. The
score_transform of a model is left out, as libvmaf does unless it is asked for it.
"""

import math
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from vmafx.scoring.engines.ffmpeg import ffmpeg_path, installed_ffmpeg
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.models import MAX_MODEL_BYTES, VmafModel
from vmafx.scoring.result import MODEL_FEATURES

Array = NDArray[np.float64]

MAX_VECTORS = 4000
BLOCK = 4096  # rows that are scored at once: each takes a number per support vector
MAX_EMBEDDED_BYTES = 1 << 20
MAX_NUMBER = 1e9  # of any parameter: predictions do not overflow
NO_LIMIT = 100.0  # libvmaf's enhancement gain limit if the model does not set one
NEG_LIMIT = 1.0
GAIN_LIMITS = {"adm_enhn_gain_limit", "vif_enhn_gain_limit"}
FEATURE_NAME = re.compile(r"VMAF_(?:integer_)?feature_(\w+)_score")

# The embedded JSON has no name: the number of support vectors and the gain limit tell the models apart.
EMBEDDED = {
    "vmaf_v0.6.1": (211, NO_LIMIT),
    "vmaf_v0.6.1neg": (211, NEG_LIMIT),
    "vmaf_4k_v0.6.1": (262, NO_LIMIT),
}


class SvrModel(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The parameters of a model; columns of features are in the order of MODEL_FEATURES."""

    slopes: Array  # of the score, then of each feature
    intercepts: Array
    lowest: float
    highest: float
    gamma: float
    rho: float
    weights: Array
    vectors: Array  # in rescaled features
    gain_limit: float
    engine_model: str  # a built-in model for which an engine computes the features that this model needs

    def support_vectors(self) -> Array:
        """The support vectors as features."""
        return np.asarray((self.vectors - self.intercepts[1:]) / self.slopes[1:])

    def raw_scores(self, features: Array) -> Array:
        """The scores of rows of features, without limits."""
        blocks = [self._outputs(features[start : start + BLOCK]) for start in range(0, len(features), BLOCK)]
        return np.asarray((np.concatenate(blocks or [np.empty(0)]) - self.intercepts[0]) / self.slopes[0])

    def _outputs(self, features: Array) -> Array:
        points = features * self.slopes[1:] + self.intercepts[1:]
        squares = (points**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2 * (points @ self.vectors.T)
        return np.asarray(np.exp(-self.gamma * squares) @ self.weights - self.rho)

    def predict(self, features: Array) -> Array:
        """The scores of rows of features."""
        return np.clip(self.raw_scores(features), self.lowest, self.highest)


class _Transform(msgspec.Struct):
    enabled: bool | str = False


class _Parameters(msgspec.Struct):
    model: str
    model_type: str
    norm_type: str
    feature_names: Annotated[list[str], Meta(max_length=100)]
    slopes: list[float]
    intercepts: list[float]
    score_clip: tuple[float, float]
    feature_opts_dicts: list[dict[str, float]] = []
    score_transform: _Transform | None = None


class _ModelJson(msgspec.Struct):
    model_dict: _Parameters


def parse_model(content: bytes, name: str) -> SvrModel:
    """Parse the JSON of a model. Raises BadInput, which calls the model by `name`."""
    if len(content) > MAX_MODEL_BYTES:
        raise BadInput("model", f"{name} is larger than {MAX_MODEL_BYTES >> 20} MiB, the limit for models")
    try:
        parameters = msgspec.json.decode(content, type=_ModelJson).model_dict
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("model", f"{name} is not a VMAF model in JSON: {error}") from error
    try:
        return _read(parameters)
    except ValueError as error:
        raise BadInput("model", f"only libvmaf can score with {name}: {error}") from error


def parameters_of(model: VmafModel, environ: Mapping[str, str]) -> SvrModel:
    """Those of an opened model, or of the base of a learned one. Raises BadInput if only libvmaf can score with it.

    Those of a built-in model are read from the ffmpeg that is installed with vmafx, if there is one: the libvmaf of
    another may be a shared library.
    """
    if model.fd is not None:
        return parse_model(os.pread(model.fd, MAX_MODEL_BYTES, 0), model.name)
    name = model.name if model.learned is None else model.learned.base
    return embedded_model(name, Path(installed_ffmpeg() or ffmpeg_path(environ)))


def embedded_model(name: str, binary: Path) -> SvrModel:
    """The built-in model of this name, from the binary of an engine."""
    if name not in EMBEDDED:
        raise BadInput("model", f"there is no built-in model {name!r}; use {', '.join(EMBEDDED)}, or a JSON file")
    try:
        contents = list(_embedded(binary))
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        raise NodeFault(f"cannot read {binary}: {error}") from error
    for content in contents:
        with suppress(BadInput):  # another model, of a kind that only libvmaf knows
            model = parse_model(content, name)
            if (len(model.weights), model.gain_limit) == EMBEDDED[name]:
                return msgspec.structs.replace(model, engine_model=name)
    raise BadInput(
        "model",
        f"{binary} does not contain the parameters of {name} (its libvmaf may be a shared library);"
        f" give the path or URI of {name}.json instead of the name",
    )


def _embedded(binary: Path) -> Iterator[bytes]:
    """The JSON of single models on integer features; members of a collection of models do not start after a NUL."""
    with binary.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for match in re.finditer(rb'\0(?=\{\s*"param_dict")', content):
            end = content.find(b"\0", match.end(), match.end() + MAX_EMBEDDED_BYTES)
            model = content[match.end() : max(end, match.end())]
            if all(f'"VMAF_integer_feature_{feature}_score"'.encode() in model for feature in MODEL_FEATURES):
                yield model


def _read(parameters: _Parameters) -> SvrModel:
    """Raises ValueError."""
    if (parameters.model_type, parameters.norm_type) != ("LIBSVMNUSVR", "linear_rescale"):
        kind = f"{parameters.model_type[:50]!r} with {parameters.norm_type[:50]!r}"
        raise ValueError(f"it is a {kind}, not a LIBSVMNUSVR with linear_rescale")
    if parameters.score_transform is not None and parameters.score_transform.enabled not in {False, "false"}:
        raise ValueError("it has a score_transform that is always enabled")
    order = _feature_order(parameters.feature_names)
    scale = [0, *(column + 1 for column in order)]
    slopes, intercepts = (
        _rescaling(values, len(scale))[scale] for values in (parameters.slopes, parameters.intercepts)
    )
    lowest, highest = parameters.score_clip
    if not (-MAX_NUMBER <= lowest < highest <= MAX_NUMBER):
        raise ValueError("score_clip is not a range")
    header, weights, vectors = _parse_libsvm(parameters.model, len(order))
    gamma, rho = (_number(header.get(name, "")) for name in ("gamma", "rho"))
    if np.abs(slopes).min() < 1 / MAX_NUMBER or gamma <= 0:
        raise ValueError("a slope is zero, or gamma is not positive")
    gain_limit = _gain_limit(parameters)
    return SvrModel(
        slopes=slopes,
        intercepts=intercepts,
        lowest=lowest,
        highest=highest,
        gamma=gamma,
        rho=rho,
        weights=weights,
        vectors=vectors[:, order],
        gain_limit=gain_limit,
        engine_model="vmaf_v0.6.1neg" if gain_limit == NEG_LIMIT else "vmaf_v0.6.1",
    )


def _feature_order(names: list[str]) -> list[int]:
    """The column of the file for each of MODEL_FEATURES."""
    short = []
    for name in names:
        match = FEATURE_NAME.fullmatch(name)
        if match is None or match[1] not in MODEL_FEATURES:
            raise ValueError(f"the feature {name[:100]!r} is not one of {', '.join(MODEL_FEATURES)}")
        short.append(match[1])
    if sorted(short) != sorted(MODEL_FEATURES):
        raise ValueError(f"it needs each of the features {', '.join(MODEL_FEATURES)} once")
    return [short.index(feature) for feature in MODEL_FEATURES]


def _gain_limit(parameters: _Parameters) -> float:
    """The limit that all features have in common: NEG_LIMIT or NO_LIMIT."""
    options = parameters.feature_opts_dicts or [{} for _ in parameters.feature_names]
    if len(options) != len(parameters.feature_names):
        raise ValueError("feature_opts_dicts does not have an entry for each feature")
    limits = set()
    for name, option in zip(parameters.feature_names, options, strict=True):
        if option.keys() - GAIN_LIMITS:
            raise ValueError(f"feature_opts_dicts has options other than {', '.join(sorted(GAIN_LIMITS))}")
        if "motion2" not in name:
            limits.add(next(iter(option.values()), NO_LIMIT))
    if len(limits) != 1 or (limit := limits.pop()) not in {NEG_LIMIT, NO_LIMIT}:
        raise ValueError(f"the enhancement gain limits are not all {NEG_LIMIT:g} or all {NO_LIMIT:g}")
    return float(limit)


def _rescaling(values: list[float], count: int) -> Array:
    if len(values) != count or not all(abs(value) <= MAX_NUMBER for value in values):  # false for NaN too
        raise ValueError(f"it needs {count} finite slopes and intercepts: one for the score and each feature")
    return np.array(values)


def _parse_libsvm(text: str, columns: int) -> tuple[dict[str, str], Array, Array]:
    """LIBSVM's own format: lines of `name value`, then after SV a line per vector, `weight index:value ...`."""
    head, _, body = text.partition("\nSV\n")
    header = dict(line.split(maxsplit=1) for line in head.splitlines()[:20] if len(line.split()) > 1)
    if (header.get("svm_type"), header.get("kernel_type")) != ("nu_svr", "rbf"):
        raise ValueError("its SVR is not a nu_svr with an rbf kernel")
    if body.count("\n") > MAX_VECTORS:
        raise ValueError(f"it has more than {MAX_VECTORS} support vectors")
    rows = [line.split() for line in body.split("\n") if line.strip()]
    if not rows:
        raise ValueError("it has no support vectors")
    indices = {str(column + 1) for column in range(columns)}
    vectors = np.zeros((len(rows), columns))  # values that are not given are zero
    for vector, row in zip(vectors, rows, strict=True):
        for entry in row[1:]:
            index, _, value = entry.partition(":")
            if index not in indices:
                raise ValueError(f"a support vector has the index {index[:20]!r}, not 1 to {columns}")
            vector[int(index) - 1] = _number(value)
    return header, np.array([_number(row[0]) for row in rows]), vectors


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= MAX_NUMBER:  # false for NaN too
        raise ValueError(f"{text[:20]!r} is not a number from {-MAX_NUMBER:g} to {MAX_NUMBER:g}")
    return number
