"""Pictures as arrays, and filters on them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float64]
Luma = NDArray[np.uint8] | NDArray[np.uint16]


def in_8_bit_range(luma: Luma, bit_depth: int) -> Plane:
    """Samples as if they had 8 bits, with a fraction where they have more: all constants of VMAF are made for that."""
    return luma.astype(np.float64) / (1 << (bit_depth - 8))


def mirrored(positions: NDArray[np.intp], length: int, *, repeat_last: bool) -> NDArray[np.intp]:
    """Positions beyond an edge, folded back. The first sample is never repeated; motion and ADM repeat the last."""
    folded = np.where(positions < 0, -positions, positions)
    return np.where(folded >= length, 2 * length - 2 + repeat_last - folded, folded)


def with_border(plane: Plane, radius: int, axis: int, *, repeat_last: bool) -> Plane:
    length = plane.shape[axis]
    return plane.take(mirrored(np.arange(-radius, length + radius), length, repeat_last=repeat_last), axis)


def filtered(plane: Plane, taps: Iterable[float], axis: int, *, repeat_last: bool) -> Plane:
    """The plane after a symmetric filter of odd length along one axis, as large as before."""
    taps = tuple(taps)
    length = plane.shape[axis]
    wide = with_border(plane, len(taps) // 2, axis, repeat_last=repeat_last)
    total = np.zeros_like(plane)
    for offset, tap in enumerate(taps):
        total += tap * (wide[offset : offset + length] if axis == 0 else wide[:, offset : offset + length])
    return total


def rounded(plane: Plane, bits: int) -> Plane:
    """The plane rounded to this number of fractional bits, halves up."""
    return np.floor(plane * (1 << bits) + 0.5) / (1 << bits)
