"""The numbers in the definitions of VIF, ADM and motion, in the fixed point of libvmaf.

Pictures are filtered in integers with the fractional bits that libvmaf keeps, so that sums are the same whatever their
order. The statistics of a pixel are floating-point.
"""

import math
from typing import NamedTuple

# VIF: Gaussian windows, one a scale, of 17, 9, 5 and 3 taps with a deviation of a fifth of their width, in 1/65536.
WINDOWS = (
    (489, 935, 1640, 2640, 3896, 5274, 6547, 7455, 7784, 7455, 6547, 5274, 3896, 2640, 1640, 935, 489),
    (1244, 3663, 7925, 12590, 14692, 12590, 7925, 3663, 1244),
    (3571, 16004, 26386, 16004, 3571),
    (10904, 43728, 10904),
)
EYE_NOISE = 2.0  # variance, in 8-bit levels
VARIANCE_BITS = 16  # fractional bits of variances
SCALED_BITS = 16  # of a sample at the smaller scales: 8 and 8 fractional ones

BLUR = WINDOWS[2]  # of the reference, for motion
BLURRED_BITS = 8  # fractional bits

# ADM: Daubechies' wavelet of four taps, in 1/32768.
LOW = (15826, 27411, 7345, -4240)
HIGH = (LOW[3], -LOW[2], LOW[1], -LOW[0])
TAP_BITS = 15
SAME_DIRECTION = 0.9996954202651978  # the squared cosine of an angle of one degree, in single precision
BORDER = 0.1  # share of each side that is ignored


class LumaFormat(NamedTuple):
    """The frames that are measured: only luma counts."""

    width: int
    height: int
    bits: int  # of a sample


class FixedPoint(NamedTuple):
    """The fractional bits at a scale of ADM."""

    columns: int  # of wavelets, after the filter over columns
    rows: int  # and over rows
    kept: int  # of the squares of restored detail
    there: int | None  # of the squares of the reference's detail; None for all bits


SCALES = (FixedPoint(7, 6, 25, None), FixedPoint(21, 21, 20, 11), FixedPoint(20, 19, 16, 8), FixedPoint(18, 18, 14, 5))


class Shifts(NamedTuple):
    """What the sums of wavelet filters are shifted right by, after the filter over columns and over rows."""

    columns: int
    rows: int


def wavelet_shifts(scale: int, bits: int) -> Shifts:
    """Those of a scale; `bits` are those of a sample of the picture."""
    given = bits - 8 if scale == 0 else SCALES[scale - 1].rows
    return Shifts(TAP_BITS + given - SCALES[scale].columns, TAP_BITS + SCALES[scale].columns - SCALES[scale].rows)


# Watson, Yang, Solomon and Villasenor (1997), tables IV and V: thresholds of luma, and amplitudes of the basis
# functions of horizontal or vertical and of diagonal detail, finest scale first; seen from three picture heights.
PIXELS_A_DEGREE = 3.0 * 1080 * math.pi / 180
THRESHOLD, CURVATURE, FREQUENCY = 0.495, 0.466, 0.401
UPRIGHT_GAIN, DIAGONAL_GAIN = 1.0, 0.534
AMPLITUDES = ((0.67234, 0.72709), (0.41317, 0.49428), (0.22727, 0.28688), (0.11792, 0.15214))


def visibility(scale: int) -> tuple[float, float]:
    """The weights of upright and of diagonal detail: the inverse of the smallest visible quantisation step."""

    def step(gain: float, amplitude: float) -> float:
        decades = math.log10(2.0 ** (scale + 1) * FREQUENCY * gain / PIXELS_A_DEGREE)
        return 2 * THRESHOLD * 10 ** (CURVATURE * decades**2) / amplitude

    upright, diagonal = AMPLITUDES[scale]
    return 1 / step(UPRIGHT_GAIN, upright), 1 / step(DIAGONAL_GAIN, diagonal)


def inner(length: int) -> int:
    """The width of the border that ADM ignores at either end of a band of this length."""
    return int(max(length * BORDER - 0.5, 0))


# The sums over a frame that features follow from: VIF's information at each scale, then ADM's cubes of horizontal,
# vertical and diagonal detail at each scale.
BANDS = 3
SUMS = len(WINDOWS) + BANDS * len(SCALES)
