"""Samples as a fleet would send them: plausible features, with the scores that vmaf_v0.6.1 gives them."""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np

from tests.support.sample_streams import base
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.distillation import plausible_features
from vmafx.training.held_out import is_held_out
from vmafx.training.network import Array
from vmafx.training.samples import SampleBatch, SamplePush, SampleSource, encode_batch, make_batch

BASE = "vmaf_v0.6.1"
NAMESPACE, NODE = "films", "n1"


def frames(seed: int, count: int) -> tuple[Array, Array]:
    """Features, and their scores."""
    features = plausible_features(base(), count, np.random.default_rng(seed))
    return features, base().predict(features)


@cache
def job_name(seed: int) -> str:
    """The uid of a job. Those of 0, 10, 20 and so on are held out."""
    names = (f"job-{seed}-{number}" for number in itertools.count())
    return next(name for name in names if is_held_out(name) == (seed % 10 == 0))


def mean_score(seed: int, count: int = 50) -> float:
    """The score of the clip of a job."""
    return float(frames(seed, count)[1].mean())


def batch(seed: int = 0, count: int = 50) -> SampleBatch:
    features, scores = frames(seed, count)
    values = {name: list(features[:, column]) for column, name in enumerate(MODEL_FEATURES)}
    made = make_batch(BASE, range(count), {**values, "vmaf": list(scores)})
    assert made is not None
    return made


def teacher_score(batch: SampleBatch) -> float:
    """The mean of the teacher's scores in a batch."""
    scores = batch.rows()[len(MODEL_FEATURES) :: len(MODEL_FEATURES) + 1]
    return sum(scores) / len(scores)


def push(
    seed: int = 0, count: int = 50, *, attempt: int = 0, node: str = NODE, human_score: float | None = None
) -> SamplePush:
    """The samples of a job, which has one attempt unless another is given."""
    job = job_name(seed)
    source = SampleSource(NAMESPACE, node, job, f"{job}-{attempt}", human_score)
    return SamplePush(source, encode_batch(batch(seed, count)))


def pushes(count: int, size: int = 50, first: int = 0) -> Iterator[SamplePush]:
    for seed in range(first, first + count):
        yield push(seed, size)
