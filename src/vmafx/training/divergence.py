"""Detects that training makes a model worse than its last checkpoint.

The weights in training (live) and the averaged weights of the last checkpoint (reference) predict the same samples,
before these are trained on. With the smoothed mean squared errors L and R of the two, in points of score squared, the
training has diverged if

    L > FACTOR R + MARGIN.

Both see the same samples: noise and hard clips raise L and R alike, and labels that change raise R even more than L.
Only training itself can raise L alone.
"""

import msgspec

FACTOR = 2.0
MARGIN = 16.0  # 4 points: without noise, R can be nearly zero
SMOOTHING = 0.98  # L and R are averages of about 50 comparisons
MIN_ROWS = 320  # samples that were compared


class LossComparison(msgspec.Struct):
    """Sums of weighted losses, with the weight of older ones falling by SMOOTHING."""

    live: float = 0.0
    reference: float = 0.0
    weight: float = 0.0
    rows: int = 0

    def add(self, live: float, reference: float, rows: int) -> None:
        """Add the mean losses of `rows` samples."""
        self.live = SMOOTHING * self.live + live
        self.reference = SMOOTHING * self.reference + reference
        self.weight = SMOOTHING * self.weight + 1.0
        self.rows += rows

    def problem(self) -> str:
        """Why the training has diverged; empty if it has not."""
        if self.rows < MIN_ROWS:
            return ""
        live, reference = self.live / self.weight, self.reference / self.weight
        if live <= FACTOR * reference + MARGIN:
            return ""
        return f"the loss rose to {live:.1f}, while the last checkpoint has {reference:.1f} on the same samples"
