"""Samples as a fleet would send them: plausible features, with the scores that vmaf_v0.6.1 gives them."""

from collections.abc import Iterator

import numpy as np

from tests.support.sample_streams import base
from vmafx.training.distillation import plausible_features
from vmafx.training.network import Array
from vmafx.training.samples import FEATURES, SampleBatch, SamplePush, SampleSource, encode_batch, make_batch

BASE = "vmaf_v0.6.1"
NAMESPACE, NODE = "films", "n1"


def frames(seed: int, count: int) -> tuple[Array, Array]:
    """Features, and their scores."""
    features = plausible_features(base(), count, np.random.default_rng(seed))
    return features, base().predict(features)


def batch(seed: int = 0, count: int = 50, human_score: float | None = None) -> SampleBatch:
    features, scores = frames(seed, count)
    values = {name: list(features[:, column]) for column, name in enumerate(FEATURES)}
    made = make_batch(BASE, range(count), {**values, "vmaf": list(scores)}, float(scores.mean()), human_score)
    assert made is not None
    return made


def push(seed: int = 0, count: int = 50, *, job: str = "", attempt: int = 0, node: str = NODE) -> SamplePush:
    """The samples of a job, which has one attempt unless another is given."""
    job = job or f"job-{seed}"
    return SamplePush(SampleSource(NAMESPACE, node, job, f"{job}-{attempt}"), encode_batch(batch(seed, count)))


def pushes(count: int, size: int = 50, first: int = 0) -> Iterator[SamplePush]:
    for seed in range(first, first + count):
        yield push(seed, size)
