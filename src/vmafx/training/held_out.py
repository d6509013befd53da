"""The held-out window: the latest samples that are never trained on, and how well a model predicts them."""

import numpy as np

from vmafx.training.network import Array
from vmafx.training.samples import FEATURES
from vmafx.training.status import Quality

WINDOW = 2000


class HeldOutWindow:
    """Keeps the latest WINDOW samples."""

    def __init__(self, rows: Array | None = None) -> None:
        """Start with these rows of features and target, the oldest first."""
        self._rows = np.empty((0, len(FEATURES) + 1)) if rows is None else rows[-WINDOW:]

    def add(self, features: Array, targets: Array) -> None:
        """Targets are scores, 0 to 100."""
        self._rows = np.concatenate([self._rows, np.column_stack([features, targets])])[-WINDOW:].copy()

    @property
    def rows(self) -> Array:
        return self._rows

    @property
    def features(self) -> Array:
        return self._rows[:, :-1]

    @property
    def targets(self) -> Array:
        return self._rows[:, -1]

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
