"""The parameters of a model, extracted from the engine: libvmaf embeds its models as JSON in the binary."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.svr import Svr, parse

FEATURES = ("adm2", "motion2", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3")
NO_LIMIT = 100.0  # libvmaf's default enhancement gain limit

# The JSON has no name. Models are identified by the number of support vectors and the gain limit.
_KNOWN_BY = {
    "vmaf_v0.6.1": (211, NO_LIMIT),
    "vmaf_v0.6.1neg": (211, 1.0),
    "vmaf_4k_v0.6.1": (262, NO_LIMIT),
}


@dataclass(frozen=True)
class Transform:
    """The transform of the phone model: a parabola that never lowers the score."""

    p0: float
    p1: float
    p2: float

    def __call__(self, score: float) -> float:
        return max(score, self.p0 + self.p1 * score + self.p2 * score**2)


@dataclass(frozen=True)
class Model:
    """Scores features: rescale them, ask the SVR, and scale its answer back."""

    name: str
    svr: Svr
    slopes: NDArray[np.float64]  # of the score, then of each of FEATURES
    intercepts: NDArray[np.float64]
    lowest: float
    highest: float
    vif_gain_limit: float
    adm_gain_limit: float
    transform: Transform | None
    numbers: dict[str, Any] = field(repr=False)  # as the engine has them

    def score(self, features: Mapping[str, float]) -> float:
        values = np.array([features[name] for name in FEATURES])
        answer = self.svr.predict(self.slopes[1:] * values + self.intercepts[1:])
        score = (answer - float(self.intercepts[0])) / float(self.slopes[0])
        if self.transform is not None:
            score = self.transform(score)
        return min(max(score, self.lowest), self.highest)


class UnknownModel(Exception):
    """The engine does not have this model, or in a form that the oracle does not support."""


def load(ffmpeg: Path, name: str, *, enable_transform: bool = False) -> Model:
    """The model of this name. As in libvmaf, its transform is applied only on request."""
    if name not in _KNOWN_BY:
        raise UnknownModel(f"{name}: this oracle knows {', '.join(_KNOWN_BY)}")
    for numbers in _embedded(ffmpeg):
        model = _read(name, numbers, enable_transform)
        if (len(model.svr.weights), model.vif_gain_limit) == _KNOWN_BY[name]:
            return model
    raise UnknownModel(f"{name}: not found in {ffmpeg}")


@cache
def _embedded(ffmpeg: Path) -> tuple[dict[str, Any], ...]:
    return tuple(_found_in(ffmpeg.read_bytes()))


def _found_in(binary: bytes) -> Iterator[dict[str, Any]]:
    """The models of our features; a collection of models, for confidence intervals, has no model_dict of its own."""
    for match in re.finditer(rb'\{\s*"param_dict"', binary):
        start = match.start()
        if start and binary[start - 1] != 0:
            continue
        whole = json.loads(binary[start : binary.index(0, start)])
        if _features(whole["model_dict"]) == FEATURES:
            yield whole["model_dict"]


def _features(numbers: dict[str, Any]) -> tuple[str, ...]:
    return tuple(re.sub(r"^VMAF_integer_feature_(\w+)_score$", r"\1", name) for name in numbers["feature_names"])


def _read(name: str, numbers: dict[str, Any], enable_transform: bool) -> Model:
    if (numbers["model_type"], numbers["norm_type"]) != ("LIBSVMNUSVR", "linear_rescale"):
        raise UnknownModel(f"{name}: {numbers['model_type']}, {numbers['norm_type']}")
    options = numbers.get("feature_opts_dicts", [{}] * len(FEATURES))
    limits = dict(zip(FEATURES, options, strict=True))
    lowest, highest = numbers["score_clip"]
    return Model(
        name=name,
        svr=parse(numbers["model"]),
        slopes=np.array(numbers["slopes"]),
        intercepts=np.array(numbers["intercepts"]),
        lowest=lowest,
        highest=highest,
        vif_gain_limit=limits["vif_scale0"].get("vif_enhn_gain_limit", NO_LIMIT),
        adm_gain_limit=limits["adm2"].get("adm_enhn_gain_limit", NO_LIMIT),
        transform=_transform(numbers.get("score_transform", {}), enable_transform),
        numbers=numbers,
    )


def _transform(numbers: dict[str, Any], enable: bool) -> Transform | None:
    if not numbers or not (enable or numbers.get("enabled")):
        return None
    if set(numbers) - {"enabled"} != {"p0", "p1", "p2", "out_gte_in"}:
        raise UnknownModel(f"a transform of another kind: {numbers}")
    return Transform(numbers["p0"], numbers["p1"], numbers["p2"])
