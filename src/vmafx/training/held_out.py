"""The held-out window: the latest samples that are never trained on, and how well a model predicts them."""

import hashlib

import numpy as np

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.network import Array
from vmafx.training.status import Quality

WINDOW = 2000
COLUMNS = len(MODEL_FEATURES) + 2  # features, target, clip
HOLD_OUT_EVERY = 10  # clips


def clip_id(job: str) -> int:
    """A number that identifies the clip of a job; small enough to be exact as a float."""
    return int.from_bytes(hashlib.blake2b(job.encode(), digest_size=6).digest())


def is_held_out(job: str) -> bool:
    """Whether the clip of a job is held out: decided by its uid, so the same for all of its attempts and scores."""
    return clip_id(job) % HOLD_OUT_EVERY == 0


class HeldOutWindow:
    """Keeps the latest WINDOW samples."""

    def __init__(self, rows: Array | None = None) -> None:
        """Start with these rows of features, target and clip, the oldest first."""
        self._rows = np.empty((0, COLUMNS)) if rows is None else rows[-WINDOW:]

    def add(self, features: Array, targets: Array, clip: int) -> None:
        """Targets are scores, 0 to 100. The samples replace earlier ones of the same clip."""
        others = self._rows[self._rows[:, -1] != clip]
        added = np.column_stack([features, targets, np.full(len(targets), float(clip))])
        self._rows = np.concatenate([others, added])[-WINDOW:].copy()

    @property
    def rows(self) -> Array:
        return self._rows

    @property
    def features(self) -> Array:
        return self._rows[:, :-2]

    @property
    def targets(self) -> Array:
        return self._rows[:, -2]

    def __len__(self) -> int:
        return len(self._rows)


def quality(predictions: Array, targets: Array) -> Quality:
    """Mean squared error and correlations; without a value where there are too few samples for it."""
    if not len(targets):
        return Quality()
    return Quality(
        loss=float(np.mean((predictions - targets) ** 2)),
        pearson=pearson(predictions, targets),
        spearman=pearson(ranks(predictions), ranks(targets)),
    )


def pearson(first: Array, second: Array) -> float | None:
    """The correlation, -1 to 1; None if one side is constant."""
    if not len(first) or not np.ptp(first) or not np.ptp(second):
        return None
    first, second = first - first.mean(), second - second.mean()
    # Scaled to 1 at most, so that squares of small values do not underflow.
    first, second = first / np.abs(first).max(), second / np.abs(second).max()
    correlation = (first @ second) / np.sqrt((first @ first) * (second @ second))
    return float(np.clip(correlation, -1.0, 1.0))


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values have the mean of their ranks."""
    _, positions, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[positions])
