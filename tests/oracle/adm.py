"""Detail Loss Metric (Li, Zhang, Ma and Ngan, 2011): adm2, the share of the reference's visible detail that is kept.

Both pictures are decomposed into wavelets. Attenuated detail of the reference in the distorted picture is restored
detail; the rest is an additive impairment, which masks restored detail around it. Both are weighted by the contrast
sensitivity at three picture heights from a display of 1080 lines.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.oracle.planes import Plane, mirrored, rounded, with_border


class FixedPoint(NamedTuple):
    """The number of fractional bits that libvmaf keeps at a scale.

    Its rounding is imitated, because faint detail matters: where the reference has none, every direction matches, the
    gain may be a hundredfold, and the cube root amplifies small sums.
    """

    columns: int  # of wavelets, after the filter over columns
    rows: int  # and over rows
    kept: int  # of the squares of restored detail
    there: int | None  # of the squares of the reference's detail; None for all bits


SCALES = (FixedPoint(7, 6, 25, None), FixedPoint(21, 21, 20, 11), FixedPoint(20, 19, 16, 8), FixedPoint(18, 18, 14, 5))

# Daubechies' wavelet of four taps, in 1/32768.
LOW = (15826 / 32768, 27411 / 32768, 7345 / 32768, -4240 / 32768)
HIGH = (LOW[3], -LOW[2], LOW[1], -LOW[0])

PIXELS_A_DEGREE = 3.0 * 1080 * np.pi / 180
# Watson, Yang, Solomon and Villasenor (1997), tables IV and V: thresholds of luma, and amplitudes of the basis
# functions of horizontal or vertical and of diagonal detail, finest scale first.
THRESHOLD, CURVATURE, FREQUENCY = 0.495, 0.466, 0.401
UPRIGHT_GAIN, DIAGONAL_GAIN = 1.0, 0.534
AMPLITUDES = ((0.67234, 0.72709), (0.41317, 0.49428), (0.22727, 0.28688), (0.11792, 0.15214))

SAME_DIRECTION = float(np.float32(np.cos(np.pi / 180) ** 2))  # an angle of one degree
BORDER = 0.1  # share of each side that is ignored


class Detail(NamedTuple):
    """The three bands of one scale."""

    horizontal: Plane
    vertical: Plane
    diagonal: Plane


def adm2(reference: Plane, distorted: Plane, gain_limit: float) -> float:
    """Restored detail divided by the detail of the reference; a gain counts up to the gain limit."""
    reference, distorted = reference - 128, distorted - 128  # as in libvmaf; affects rounding only
    kept = there = 0.0
    for scale, bits in enumerate(SCALES):
        reference, detail_r = _wavelets(reference, bits)
        distorted, detail_d = _wavelets(distorted, bits)
        visible = _visibility(scale)
        restored, added = (_weighted(detail, visible) for detail in _decoupled(detail_r, detail_d, gain_limit))
        kept += _pooled([rounded(band**2, bits.kept) * band for band in _masked(restored, added)])
        there += _pooled([_cubed(band, bits.there) * weight**3 for band, weight in zip(detail_r, visible, strict=True)])
    return kept / there


def _wavelets(plane: Plane, bits: FixedPoint) -> tuple[Plane, Detail]:
    """The picture at half size, and the detail bands that were split off."""
    low, high = (rounded(_halved(plane, taps, 0), bits.columns) for taps in (LOW, HIGH))
    smaller, horizontal, vertical, diagonal = (
        rounded(_halved(half, taps, 1), bits.rows)
        for half, taps in ((low, LOW), (high, LOW), (low, HIGH), (high, HIGH))
    )
    return smaller, Detail(horizontal, vertical, diagonal)


def _halved(plane: Plane, taps: tuple[float, ...], axis: int) -> Plane:
    """Filter along the axis, starting one sample early, and keep every second sample, including an odd last one."""
    length = plane.shape[axis]
    starts = 2 * np.arange((length + 1) // 2) - 1
    taken = (plane.take(mirrored(starts + offset, length, repeat_last=True), axis) for offset in range(len(taps)))
    halved: Plane = np.sum([tap * samples for tap, samples in zip(taps, taken, strict=True)], axis=0)
    return halved


def _decoupled(reference: Detail, distorted: Detail, gain_limit: float) -> tuple[Detail, Detail]:
    """Split the distorted detail into restored detail of the reference and additive impairment."""
    same = _same_direction(reference, distorted)
    restored = Detail(*(_restored(r, d, same, gain_limit) for r, d in zip(reference, distorted, strict=True)))
    return restored, Detail(*(d - r for d, r in zip(distorted, restored, strict=True)))


def _same_direction(reference: Detail, distorted: Detail) -> NDArray[np.bool_]:
    """Where edges keep their direction within one degree: a change of contrast there is no impairment.

    In single precision, as in libvmaf: beside one degree the last bit decides, and a strong edge can be worth a point.
    """
    dot = _single(reference.horizontal * distorted.horizontal + reference.vertical * distorted.vertical)
    length_r = _single(reference.horizontal**2 + reference.vertical**2)
    length_d = _single(distorted.horizontal**2 + distorted.vertical**2)
    return np.logical_and(dot >= 0, dot * dot >= SAME_DIRECTION * length_r * length_d)


def _single(plane: Plane) -> Plane:
    return plane.astype(np.float32).astype(np.float64)


def _restored(reference: Plane, distorted: Plane, same: NDArray[np.bool_], gain_limit: float) -> Plane:
    nothing = reference == 0
    share = np.where(nothing, 1, np.clip(distorted / np.where(nothing, 1, reference), 0, 1))
    restored = share * reference
    enhanced = restored * gain_limit
    enhanced = np.where(restored > 0, np.minimum(enhanced, distorted), np.maximum(enhanced, distorted))
    return np.where(same & (restored != 0), enhanced, restored)


def _visibility(scale: int) -> tuple[float, float, float]:
    """The weight of each band: the inverse of its smallest visible quantisation step."""

    def step(gain: float, amplitude: float) -> float:
        decades = np.log10(2.0 ** (scale + 1) * FREQUENCY * gain / PIXELS_A_DEGREE)
        return float(2 * THRESHOLD * 10 ** (CURVATURE * decades**2) / amplitude)

    upright, diagonal = AMPLITUDES[scale]
    return 1 / step(UPRIGHT_GAIN, upright), 1 / step(UPRIGHT_GAIN, upright), 1 / step(DIAGONAL_GAIN, diagonal)


def _weighted(detail: Detail, weights: tuple[float, float, float]) -> Detail:
    return Detail(*(band * weight for band, weight in zip(detail, weights, strict=True)))


def _masked(restored: Detail, added: Detail) -> Detail:
    """Restored detail minus the masking threshold: 1/30 of each neighbouring impairment and 1/15 of its own."""
    impairment = np.sum([np.abs(band) for band in added], axis=0)
    height, width = impairment.shape
    wide = with_border(with_border(impairment, 1, 0, repeat_last=True), 1, 1, repeat_last=True)
    around = np.sum([wide[y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=0)
    mask = (around + impairment) / 30
    return Detail(*(np.maximum(np.abs(band) - mask, 0) for band in restored))


def _cubed(band: Plane, bits: int | None) -> Plane:
    """libvmaf adds one, not a half, before it truncates the square: it rounds up."""
    square = band**2 if bits is None else (np.floor(band**2 * (1 << bits)) + 1) / (1 << bits)
    return square * np.abs(band)


def _pooled(cubes: list[Plane]) -> float:
    """A cubic mean over the middle of the picture; the constant keeps pictures without detail near 1."""
    height, width = cubes[0].shape
    top, left = (int(max(length * BORDER - 0.5, 0)) for length in (height, width))
    inner = np.s_[top : height - top, left : width - left]
    area = (height - 2 * top) * (width - 2 * left)
    return float(sum(np.cbrt(band[inner].sum()) + np.cbrt(area / 32) for band in cubes))
