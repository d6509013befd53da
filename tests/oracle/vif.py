"""Visual Information Fidelity (Sheikh and Bovik, 2006), in the pixel domain, at four scales.

Around each pixel the distorted picture is taken for the reference times a gain plus noise, and the eye adds its own
noise. A scale's VIF is the information about the scene that gets through to the eye from the distorted picture, divided
by what gets through from the reference.
"""

import numpy as np

from tests.oracle.planes import Plane, filtered, rounded

# Gaussian windows, one a scale, of 17, 9, 5 and 3 taps with a deviation of a fifth of their width, in 1/65536.
_WINDOWS = (
    (489, 935, 1640, 2640, 3896, 5274, 6547, 7455, 7784, 7455, 6547, 5274, 3896, 2640, 1640, 935, 489),
    (1244, 3663, 7925, 12590, 14692, 12590, 7925, 3663, 1244),
    (3571, 16004, 26386, 16004, 3571),
    (10904, 43728, 10904),
)
WINDOWS = tuple(tuple(tap / 65536 for tap in window) for window in _WINDOWS)
EYE_NOISE = 2.0  # variance, in 8-bit levels
TINY = 1e-10


def vif(reference: Plane, distorted: Plane, gain_limit: float) -> tuple[float, ...]:
    """The VIF of each scale, finest first. Gain is limited: with 1, sharpening has no effect."""
    scores = []
    for scale, window in enumerate(WINDOWS):
        if scale:
            reference, distorted = _halved(reference, window), _halved(distorted, window)
        scores.append(_at_one_scale(reference, distorted, window, gain_limit))
    return tuple(scores)


def _halved(plane: Plane, window: tuple[float, ...]) -> Plane:
    """Every second pixel of the low-passed picture; an odd last row or column is dropped."""
    height, width = plane.shape
    return rounded(_mean(plane, window), 8)[: height // 2 * 2 : 2, : width // 2 * 2 : 2]


def _at_one_scale(reference: Plane, distorted: Plane, window: tuple[float, ...], gain_limit: float) -> float:
    mean_r, mean_d = _mean(reference, window), _mean(distorted, window)
    variance_r = np.maximum(_mean_product(reference, reference, window) - rounded(mean_r * mean_r, 16), 0)
    variance_d = np.maximum(_mean_product(distorted, distorted, window) - rounded(mean_d * mean_d, 16), 0)
    covariance = _mean_product(reference, distorted, window) - rounded(mean_r * mean_d, 16)

    gain = np.where((variance_r < TINY) | (variance_d < TINY) | (covariance < 0), 0, covariance / (variance_r + TINY))
    noise = np.maximum(variance_d - gain * covariance, TINY)
    gain = np.minimum(gain, gain_limit)

    seen_in_reference = np.log2(1 + variance_r / EYE_NOISE)
    seen_in_distorted = np.log2(1 + gain * gain * variance_r / (noise + EYE_NOISE))
    # Where the reference is flat nothing can be lost: full score, minus a little for added distortion.
    flat = variance_r < EYE_NOISE
    kept = np.where(flat, 1 - variance_d * 4 / 255**2, seen_in_distorted)
    return float(kept.sum() / np.where(flat, 1, seen_in_reference).sum())


def _mean(plane: Plane, window: tuple[float, ...]) -> Plane:
    """Columns are rounded to 1/256 before rows, as in libvmaf: a variance is the small difference of two large squares,
    and shows it.
    """
    return filtered(rounded(filtered(plane, window, 0, repeat_last=False), 8), window, 1, repeat_last=False)


def _mean_product(one: Plane, other: Plane, window: tuple[float, ...]) -> Plane:
    """In 1/65536, as in libvmaf, so that a pixel near the edge of being flat falls on the same side of it."""
    columns = rounded(filtered(one * other, window, 0, repeat_last=False), 16)
    return rounded(filtered(columns, window, 1, repeat_last=False), 16)
