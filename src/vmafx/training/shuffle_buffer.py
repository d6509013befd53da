"""Mixes the samples of several clips: frames of one clip are alike, and SGD needs batches that are not.

Samples wait in a buffer. When it is full, half of them, chosen at random, are trained on. The buffer starts small and
grows with the number of samples, so that training does not wait for it. Which samples are chosen depends only on the
sequence of samples, not on how it is divided into calls.
"""

import numpy as np

from vmafx.scoring.result import MODEL_FEATURES
from vmafx.training.network import Array

SIZE = 2048  # about the samples of seven clips
COLUMNS = len(MODEL_FEATURES) + 2  # features, target, weight


class ShuffleBuffer:
    """Rows of features, target and weight that wait to be trained on."""

    def __init__(self, rows: Array, batch_size: int) -> None:
        """Start with the `rows` of an earlier buffer."""
        self._batch_size = batch_size
        self._count = len(rows)
        self._buffer = np.empty((max(SIZE, 2 * batch_size, len(rows)), COLUMNS))
        self._buffer[: self._count] = rows

    @property
    def rows(self) -> Array:
        return self._buffer[: self._count]

    def add(self, features: Array, targets: Array, weights: Array, trained: int) -> int:
        """Add as many as there is room for, and return how many. `trained` is the number trained on so far."""
        begin, end = self._count, max(min(self._count + len(features), self._limit(trained)), self._count)
        added = end - begin
        self._buffer[begin:end, :-2] = features[:added]
        self._buffer[begin:end, -2] = targets[:added]
        self._buffer[begin:end, -1] = weights[:added]
        self._count = end
        return added

    def take(self, trained: int) -> Array | None:
        """Remove and return whole batches, half of the buffer; None if it is not full."""
        limit = self._limit(trained)
        if self._count < limit:
            return None
        return self._take(self._count - limit // 2, trained)

    def take_all(self, trained: int) -> Array | None:
        """Remove and return all whole batches; None if there is none."""
        return self._take(self._count, trained) if self._count >= self._batch_size else None

    def _take(self, count: int, trained: int) -> Array:
        """Remove and return whole batches of at most `count` rows, chosen at random."""
        taken = count // self._batch_size * self._batch_size
        mixed = self.rows[np.random.default_rng(trained).permutation(self._count)]
        self._count -= taken
        self._buffer[: self._count] = mixed[taken:]
        return mixed[:taken]

    def _limit(self, trained: int) -> int:
        return max(min(2 * trained, SIZE), 2 * self._batch_size)
